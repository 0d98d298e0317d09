"""Where does a submission run? On the ranks that a check starts, and nowhere else.

A check is given an `Answer` for each function. It travels to the ranks as text, becomes the notebook's
definitions there, and the call goes on to the function of that name.
"""

import ast
import linecache
import os
import sys

from allranks.grading import reading


class Answer:
    """The function or class `name` of a submission, whose `cells` are pairs (number, source)."""

    def __init__(self, cells, name):
        self.cells, self.__name__ = cells, name
        if code := _code(cells, name):
            self.__wrapped__ = code  # `inspect.getsource` reads the source of this

    def __call__(self, *args, **kwargs):
        return self._answer(*args, **kwargs)

    def __getattr__(self, name):
        """An attribute of the submission's class, such as `apply` of an autograd function; on ranks only."""
        if name.startswith("_") or "ALLRANKS_WORLD" not in os.environ:
            raise AttributeError(name)
        return getattr(self._answer, name)

    @property
    def __globals__(self):
        self._answer  # noqa: B018 (a check may look at the names before it calls the function)
        return vars(sys.modules["__main__"])

    @property
    def _answer(self):
        if "ALLRANKS_WORLD" not in os.environ:
            raise RuntimeError(f"{self.__name__} is called by the grader itself, and runs only on ranks")
        names = vars(sys.modules["__main__"])
        if self.__name__ not in _tried:
            _tried[self.__name__] = _define(self.cells, self.__name__, names)
        if self.__name__ not in names:
            raise NameError(f"{self.__name__} is not defined{_tried[self.__name__]}")
        return names[self.__name__]


_tried, _run = {}, set()  # on a rank: what went wrong with each name, and the statements that have been run


def _define(cells, wanted, names):
    """Run in `names` the definitions that `wanted` needs; return what went wrong first, to end a sentence.

    What fails defines nothing, and what only a demonstration needs is not run: a rank would import plots.
    """
    statements = [
        (number, source, place, node)
        for number, source in cells
        for place, node in enumerate(reading.definitions(ast.parse(source)))
    ]
    needed, wrong = reading.needed([node for *_, node in statements], wanted), ""
    for number, source, place, node in statements:
        if node not in needed or (number, place) in _run:
            continue
        _run.add((number, place))
        try:
            exec(_compiled(node, number, source), names)
        except Exception as error:
            wrong = wrong or f"; code cell {number} raised {type(error).__name__}: {error}"
    return wrong


def _compiled(node, number, source):
    file = f"<code cell {number}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    return compile(ast.Module([node], []), file, "exec")


def _code(cells, name):
    """The code object of the last function `name`, compiled and not run; None if there is none."""
    for number, source in reversed(cells):
        for node in reversed(reading.definitions(ast.parse(source))):
            if getattr(node, "name", None) == name and isinstance(node, ast.FunctionDef):
                codes = _compiled(node, number, source).co_consts
                return next(code for code in codes if getattr(code, "co_name", None) == name)
    return None
