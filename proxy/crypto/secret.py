"""Base of objects that hold key bytes, and secrets passed by environment variables.

Such objects can neither be copied nor printed. The variables leave the environment once a service
runs.
"""

import ctypes
import os
from collections.abc import Iterable
from typing import Any, Final, NoReturn


class Secret:
    """An object that cannot be pickled, copied or printed, so no key reaches a log or worker."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds key bytes and is neither pickled nor copied")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: key bytes not shown>"


_hidden: Final[dict[str, str]] = {}


def secret_variable(name: str) -> str:
    """The value of an environment variable, hidden or not; empty where there is none."""
    return os.environ.get(name) or _hidden.get(name, "")


def hide_variables(names: Iterable[str]) -> None:
    """Take variables out of the environment; ``secret_variable`` still returns their values.

    They are overwritten where they stand, so that ``/proc/self/environ`` does not show them and no
    child gets them.
    """
    find = ctypes.CDLL(None).getenv
    find.restype = ctypes.c_void_p
    for name in names:
        address = find(os.fsencode(name))
        value = os.environ.get(name)
        if address is None or value is None:
            continue
        _hidden[name] = value
        ctypes.memset(address, 0, len(os.fsencode(value)))
        del os.environ[name]
