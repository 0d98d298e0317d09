"""What should a reader do about an error that looks strange from a notebook? One table, and plain words."""

import functools
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
LAZY = "a generator or coroutine stays where it was made: send list(…) of it, or what asyncio.run(…) returns."
VIEWS = "two of its tensors view the same memory as different dtypes: send a clone() of one."
OPERATOR = (
    "an operator is registered in the process that defines it: define it in a module, which ranks import too."
)
DTENSORS = (
    "the results hold DTensors or a DeviceMesh, whose groups are on the ranks: here nothing can be gathered "
    "from them. Return t.full_tensor(), or t.to_local() for the rank's own part."
)
WIDGET = "a widget lives in the notebook: launch with its value, not with the widget."
IMPORT = (
    "a rank imports modules itself, from the notebook's sys.path: a module that a cell created does not "
    "exist there."
)

# What the error says, as `kind: message`, and what to do about it.
TABLE = [
    (r"(name|variable) '(get_ipython|display)'|\b(get_ipython|display) in \w+\(\)", NO_NOTEBOOK),
    (
        r"\bBdbQuit|^EOFError\n.*getpass|EOFError: EOF when reading a line|StdinNotImplementedError",
        NO_KEYBOARD,
    ),
    (r"(name|variable) '(exit|quit)'|\b(exit|quit) in \w+\(\)", RETURN),
    (r"\b(OutStream|\w*InteractiveShell)\b|\b(session|shell)\._trait_values", NO_NOTEBOOK),
    (r"_trait_values", WIDGET),
    (r"cannot pickle '(async_)?(generator|coroutine)' object", LAZY),
    (r"view the same data as different types", VIEWS),
    (r"_DispatchModule", OPERATOR),
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


def tidy(message):
    """Keep of a message what is the same at every run: its first line, without addresses and ports."""
    line = message.strip().split("\n")[0]
    line = re.sub(r"\[\S*\.(?:cc|cpp|h):\d+\] ?", "", line)
    line = re.sub(r"\(pid(\(s\))? [\d, ]+\) ", "", line)
    line = re.sub(r"\[?127\.0\.0\.1\]?:\d+", "127.0.0.1", line)
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", line)[:300]


def name_of(fn):
    """What a function is called: a partial by its function, an object by its class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)
