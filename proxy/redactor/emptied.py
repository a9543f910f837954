"""Fields of which a request says that they hold nothing any more, by what stands on the way to their places.

``$.tags[*]`` selects nothing in ``{"tags": []}``, and ``$.address.street`` nothing in ``{"address": null}``. An update that
says so is another one than an update that does not speak of them: the application holds no such value from then on, and the vault
would keep what nobody sees any more. An object without members says nothing (RFC 7396), nor does a list that ends before its index.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from proxy.model.path import Path, Step
from proxy.model.value import Value
from proxy.redactor.walker import locate

_NOTHING: Final = re.compile(rb"\[[ \t\n\r]*\]\Z")
_EMPTY: Final = Value("")


class Emptied:
    """Made when rules load; asked for each object of an update."""

    def __init__(self, fields: Sequence[str], paths: Sequence[Path]) -> None:
        """``fields`` by their ``paths``, which all start where the object does."""
        self._ways: list[tuple[str, bytes, list[tuple[Path, bool]]]] = []
        for name, path in zip(fields, paths, strict=True):
            way = _way(path)
            first = path[0]
            if way:
                self._ways.append(
                    (name, first.encode("utf-8", "surrogatepass") if isinstance(first, str) else b"", way)
                )

    def __bool__(self) -> bool:
        return bool(self._ways)

    def among(self, given: Collection[str], body: bytes, depth: int) -> Mapping[str, Value | None]:
        """The fields that are not ``given`` and hold nothing: ``None`` by a null, an empty value by an empty array or text.

        ``body`` is a valid document. Raises ``VaultError`` as ``Selection.find``.
        """
        found: dict[str, Value | None] = {}
        for name, first, way in self._ways:
            if name in given or (first not in body and b"\\" not in body):
                continue
            for path, listed in way:
                stands = [body[start:end] for start, end in locate(path, body, depth)]
                if b"null" in stands:
                    found[name] = None
                elif b'""' in stands or (listed and any(map(_NOTHING.match, stands))):
                    found[name] = _EMPTY
        return found


def _way(path: Path) -> list[tuple[Path, bool]]:
    """The places before the last one, as far as they can be told, and whether an array is expected there."""
    told = path.index(Step.DEEP) if Step.DEEP in path else len(path) - 1
    return [(path[:at], path[at] is Step.EACH or path[at] is Step.DEEP) for at in range(1, told + 1)]
