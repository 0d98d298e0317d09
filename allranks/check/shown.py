"""Run a demonstration cell of a lab: what rank 0 returns, or one sentence while a task is open."""

from allranks.launch import LaunchError, launch

SECONDS = 40.0  # that a demonstration may take


def shown(function, *args, world_size=2, backend=None):
    """Return what `function(*args)` returns on rank 0; `[]`, and print one line, if a task is open.

    A task is open if a rank fails, or if rank 0 returns None, or a list, tuple or dict with None in it.
    """
    try:
        result = launch(function, *args, world_size=world_size, timeout=SECONDS, backend=backend)[0]
    except LaunchError as failure:
        print(f"✗ A task above is still open: {str(failure).removesuffix('.')}.")
        return []
    if _is_open(result):
        print("✗ A task above is still open: its function returns None.")
        return []
    return result


def _is_open(result):
    parts = result.values() if isinstance(result, dict) else result
    parts = parts if isinstance(result, dict | list | tuple) else [result]
    return any(part is None or part is ... for part in parts)
