"""How do functions and classes of a notebook cross between processes? By value: cloudpickle, and seven rules.

- A class that is known where it arrives stays as it is there. (cloudpickle would overwrite the notebook's
  class with the copy that a rank sends back inside a result.)
- On a rank, what was defined in `__main__` is in `__main__` again: `pickle` finds it there.
- A function under `functools.cache` travels, without what it has cached.
- A large array travels as a tensor does: beside the pickle, and mapped into memory.
- What cloudpickle overlooks travels too: the `__slots__` of a class, the globals that a class inside a
  function reads in its own body, a function under `functools.singledispatch`.
- A module of a class of its own travels by its name, as others do: `torch.backends.cudnn` is one.
- To make a class again calls neither its bases' `__init_subclass__` nor a metaclass that wants keywords: both
  have run where the class was defined.

`torch.save` and `torch.load` take this module for `pickle`.
"""

import abc
import dis
import functools
import importlib
import inspect
import operator
import pickle
import sys
from types import CodeType, FunctionType, ModuleType, resolve_bases

import cloudpickle

from allranks import private

LARGE = 1 << 16  # bytes of an array
CACHED = type(functools.cache(len))
DISPATCHING = functools.singledispatch(len).__code__  # that all such functions share

load = pickle.load  # torch asks for it, for files of its old format


class Pickler(cloudpickle.Pickler):
    def reducer_override(self, value):
        if isinstance(value, CACHED) and not _importable(value):
            return _cached, (value.__wrapped__, value.cache_parameters())
        if type(value) is functools.cached_property:  # Python 3.11 puts a lock into it
            return functools.cached_property, (value.func,), {"attrname": value.attrname}
        if isinstance(value, FunctionType) and value.__code__ is DISPATCHING and not _importable(value):
            return functools.singledispatch, (_undecided,), dict(value.registry), None, None, _register
        if isinstance(value, ModuleType) and type(value) is not ModuleType and _is_imported(value):
            return importlib.import_module, (value.__name__,)
        if _is_large_array(value):
            import torch

            return _array, (torch.from_numpy(value),)
        if isinstance(value, FunctionType):
            private.global_names(value.__code__).update(_read_by_class_bodies(value.__code__))
        reduced = super().reducer_override(value)
        if isinstance(value, type) and isinstance(reduced, tuple) and vars(value).get("__slots__"):
            reduced[1][3]["__slots__"] = value.__slots__
        return reduced


class Unpickler(pickle.Unpickler):
    main = None  # on a rank: the names of `__main__`

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.new = set()

    def find_class(self, module, name):
        found = super().find_class(module, name)
        if any(found is make for make in private.makers_of_classes):
            return functools.partial(self._make_class, found)
        if found is private.set_class_state:
            return self._set_class_state
        if found is private.make_function and self.main is not None:
            return self._make_function
        return found

    def _make_class(self, make, *args):
        *_, number, _ = args  # the id that this class has in every process
        if (known := private.known_classes.get(number)) is not None:
            return known
        made = _make_skeleton(make, *args) if make is private.make_skeleton else make(*args)
        self.new.add(made)
        return made

    def _set_class_state(self, made, state):
        return private.set_class_state(made, state) if made in self.new else made

    def _make_function(self, code, variables, *args):
        if variables.get("__name__") == "__main__":
            self.main.update(variables)
            variables = self.main
        return private.make_function(code, variables, *args)


def _make_skeleton(make, metaclass, name, bases, *rest):
    """Make a class by cloudpickle's `make`, without the hooks that ran when it was defined."""
    resolved = resolve_bases(bases)  # `NamedTuple` and `Generic[T]` stand for classes
    notebooks = [base for each in resolved for base in inspect.getmro(each) if base.__module__ == "__main__"]
    hooks = {base: vars(base)["__init_subclass__"] for base in notebooks if "__init_subclass__" in vars(base)}
    for base in hooks:
        base.__init_subclass__ = classmethod(lambda cls: None)
    try:
        return make(metaclass, name, bases, *rest)
    except TypeError:  # the metaclass may want keywords
        plain = abc.ABCMeta if issubclass(metaclass, abc.ABCMeta) else type
        if metaclass is plain:
            raise
        return make(functools.partial(plain.__new__, metaclass), name, bases, *rest)
    finally:
        for base, hook in hooks.items():
            base.__init_subclass__ = hook


def become_main():
    """Make a new, empty `__main__`, which fills with what is loaded."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    Unpickler.main = vars(main)


def fill_main():
    """Put the classes of `__main__` that were loaded under their names."""
    for known in list(private.known_classes.values()):
        if known.__module__ == "__main__" and known.__qualname__ == known.__name__:
            Unpickler.main.setdefault(known.__name__, known)


def _read_by_class_bodies(code):
    """The names that classes in this code read and have not defined, each with None: cloudpickle's form."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            own = set()
            for step in () if inner.co_flags & inspect.CO_OPTIMIZED else dis.get_instructions(inner):
                if step.opname == "STORE_NAME":
                    own.add(step.argval)
                elif step.opname in ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS") and step.argval not in own:
                    yield step.argval, None
            yield from _read_by_class_bodies(inner)


def _importable(value):
    module = sys.modules.get(value.__module__)
    if module is None or value.__module__ in ("__main__", *cloudpickle.list_registry_pickle_by_value()):
        return False
    try:
        return operator.attrgetter(value.__qualname__)(module) is value
    except AttributeError:
        return False


def _is_imported(module):
    return sys.modules.get(module.__name__) is module


def _undecided(value):
    raise NotImplementedError


def _register(fn, registry):
    """Give a function that `functools.singledispatch` has made its implementations, and its name."""
    for kind, implementation in registry.items():
        fn.register(kind, implementation)
    functools.update_wrapper(fn, registry[object])


def _cached(fn, parameters):
    return functools.lru_cache(**parameters)(fn)


def _is_large_array(value):
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None
        and type(value) is numpy.ndarray
        and value.nbytes >= LARGE
        and value.dtype.kind in "biufc"
        and value.dtype.isnative
        and value.flags.c_contiguous
        and value.flags.writeable
    )


def _array(tensor):
    return tensor.numpy()
