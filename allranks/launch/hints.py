"""What should a reader do about an error that looks strange from a notebook? One table, and grammar."""

import re

NO_NOTEBOOK = (
    "a rank is an ordinary process, without a notebook: %magics, !commands and display work in cells only. "
    "On a rank use print, time.perf_counter and subprocess.run."
)
NO_KEYBOARD = (
    "nobody can type on a rank: print what you want to see, or call the function in the notebook, where "
    "breakpoint and input work."
)
RETURN = "a rank ends when its function returns: use return; exit and quit are the notebook's own."
COMPILE = "the result of torch.compile cannot be sent to a rank: compile inside the function, on each rank."
JOINED = (
    "launch has called init_process_group before your function: leave it out, or call "
    "dist.destroy_process_group first."
)
FULL = "no room is left for tensors in shared memory or on the disk (see df -h /dev/shm /tmp)."
PROCESSES = "the limit on processes is reached (ulimit -u): ask for fewer ranks, or end other programs."
FILES = "the limit on open files is reached (ulimit -n): ask for fewer ranks, or close files."
MEMORY = (
    "no memory is left: every rank is a process with its own copies. Ask for fewer ranks, or smaller tensors."
)

WRAPPED = "DistributedDataParallel belongs to the ranks' group: return model.module, or model.state_dict()."
WIDGET = "a widget lives in the notebook: launch with its value, not with the widget."
IMPORT = (
    "a rank imports modules itself, from the notebook's sys.path: a module that a cell created does not "
    "exist there."
)

# What the error says, as `kind: message`, and what to do about it.
TABLE = [
    (r"NameError: name '(get_ipython|display)'|variable '(get_ipython|display)'", NO_NOTEBOOK),
    (r"\bBdbQuit|EOFError: EOF when reading a line|StdinNotImplementedError", NO_KEYBOARD),
    (r"variable '(exit|quit)'|NameError: name '(exit|quit)'", RETURN),
    (r"_trait_values", WIDGET),
    (r"ModuleNotFoundError", IMPORT),
    (r"ConfigModuleInstance|_dynamo|_TorchDynamoContext", COMPILE),
    (r"cannot be read here: ValueError: Default process group has not been initialized", WRAPPED),
    (r"initialize the default process group twice", JOINED),
    (r"No space left on device|PytorchStreamWriter failed|unexpected pos \d+ vs|SIGBUS", FULL),
    (r"BlockingIOError|Resource temporarily unavailable|can't start new thread", PROCESSES),
    (r"Too many open files", FILES),
    (r"MemoryError|[Cc]annot allocate memory|can't allocate memory", MEMORY),
]
TABLE = [(re.compile(form), hint) for form, hint in TABLE]


def about(said):
    """Return the hint about an error, given as `kind: message`; or an empty string."""
    return next((hint for form, hint in TABLE if form.search(said)), "")


def with_article(name):
    """`a lock`, `an int`, `an ndarray`."""
    return f"{'an' if name[0] in 'aeiouAEIO' or name == 'ndarray' else 'a'} {name}"
