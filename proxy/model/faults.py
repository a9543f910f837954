"""All faults of a request at once: each where it is (JSON Pointer, RFC 6901) and what is wrong, never with the value."""

import difflib
from collections.abc import Iterable, Sequence

from proxy.errors import Code, Detail, VaultError

#: Names longer than this are not repeated: a pointer ends at the object that holds such a member.
_LONGEST_NAME = 128


class Unfit(ValueError):
    """A value does not fit. ``text`` says what is expected; ``place`` is the pointer from the value to the fault."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.place = place


def step(name: str | int) -> str:
    """One step of a JSON Pointer: ``/`` and the escaped name; nothing for a name too long to be repeated."""
    if isinstance(name, int):
        return f"/{name}"
    if len(name) > _LONGEST_NAME:
        return ""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def unknown_field(name: str, known: Iterable[str]) -> str:
    """What is wrong with a field that there is not, with the nearest name that the caller knows; never with what it sent."""
    near = difflib.get_close_matches(name, known, n=1) if len(name) <= _LONGEST_NAME else []
    return "The schema has no field of this name" + (f": did you mean {near[0]}?" if near else ".")


class Faults:
    """The faults of one request, in the order in which they were found; at most so many are told."""

    __slots__ = ("_most", "_untold", "codes", "details")

    def __init__(self, most: int) -> None:
        self.details: list[Detail] = []
        self.codes: set[Code] = set()  #: what kinds of faults there are, where that was said
        self._most = most
        self._untold = 0

    def __bool__(self) -> bool:
        return bool(self.details)

    def add(self, pointer: str, text: str, code: Code | None = None) -> None:
        """A fault at that place."""
        if code is not None:
            self.codes.add(code)
        if len(self.details) < self._most:
            self.details.append(Detail(pointer, text))
        else:
            self._untold += 1

    def each(self, pointer: str, names: Sequence[str], text: str, code: Code | None = None) -> None:
        """The same fault of each of these members of the object at ``pointer``. It costs no more than what of it is told."""
        room = max(0, self._most - len(self.details))
        for name in names[:room]:
            self.add(pointer + step(name), text, code)
        if len(names) > room:
            self.add(pointer, text, code)
            self._untold += len(names) - room - 1

    def error(self, code: Code, message: str) -> VaultError:
        """The error that tells of all of them."""
        if self._untold:
            message = f"{message} {self._untold} more faults are not listed."
        return VaultError(code, message, tuple(self.details))
