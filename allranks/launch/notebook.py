"""What does this process know of the notebook? Whether it is a kernel, and which cell a line belongs to."""

import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))


def is_kernel():
    """True in the process of a Jupyter kernel."""
    return hasattr(_shell(), "kernel")


def cell(filename):
    """The name of the cell that IPython has given this file name: `Cell In[3]`; or None."""
    shell = _shell()
    if not hasattr(shell, "compile"):
        return None
    if hasattr(shell.compile, "format_code_name"):
        name = shell.compile.format_code_name(filename)
        return name and " ".join(name)
    # IPython 7 has no numbers for its file names: they are made from the text of the cell.
    for number, text in reversed([*enumerate(shell.user_ns.get("In", ()))]):
        if shell.compile.get_code_name(text, text, number) == filename:
            return f"Cell In[{number}]"
    return None


def warn(message):
    """Warn of what the reader's line does that called `launch`."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_code.co_filename.startswith(HERE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _shell():
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
