"""Records of an application in its answers, for ``domicile adopt`` and ``release``.

They tell whether the application holds values or tokens at the ruled places. Pure.

A record is read twice, from the application itself and through the proxy. Where both are equal the
application holds the value, and where they differ a token: a token never equals its value.
"""

import enum
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.message import Media
from proxy.redactor.plan import make_plan
from proxy.redactor.redact import Spot, read_answer_body
from proxy.redactor.rules import Operation


class RecordState(enum.StrEnum):
    """Content of the application at the ruled places of a record."""

    CLEAR = "clear"
    TOKENS = "tokens"
    MIXED = "mixed"  #: values at some places, tokens at others
    EMPTY = "empty"  #: nothing at any of them


class ReadRecord(NamedTuple):
    """A record as one answer shows it: its id, its object and the ruled places of that."""

    id: str
    content: bytes
    spots: tuple[Spot, ...]  #: positions count from the start of ``content``

    @property
    def values(self) -> list[tuple[str, Value]]:
        """Field and value of each place; nulls and empty texts are nothing."""
        return [(one.field, one.value) for one in self.spots if one.value and one.value.text]

    @property
    def rest(self) -> tuple[bytes, ...]:
        """The bytes around the places."""
        bounds = [0, *(edge for one in self.spots for edge in (one.start, one.end))]
        return tuple(
            self.content[start:end]
            for start, end in zip(bounds[::2], [*bounds[1::2], len(self.content)], strict=True)
        )

    @property
    def members(self) -> dict[str, msgspec.Raw]:
        """The members of the object, each as it stands there."""
        return _members(self.content)


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class RecordReader:
    """Reads the records in answers of one operation."""

    def __init__(self, operation: Operation) -> None:
        """``VaultError(BAD_RULES)`` where the operation answers no JSON that its rule reads."""
        self.operation = operation
        plan = make_plan(operation).response
        if plan is None or plan.selection is None:
            raise VaultError(Code.BAD_RULES, f"{operation.label} answers no JSON objects.")
        self._plan, self._selection = plan, plan.selection

    def records(self, body: bytes) -> list[ReadRecord]:
        """Return the records of a page. Raises ``VaultError`` if the rule does not fit it."""
        records = list(self._read(body))
        if any(not one.id for one in records):
            raise self._unfit(
                "a record of the answer has no id where the rule names it, or at $.id"
            )
        return records

    def record(self, ident: str, body: bytes) -> ReadRecord:
        """The one record of an answer. Raises ``VaultError`` as ``records``."""
        records = list(self._read(body))
        if len(records) != 1:
            raise self._unfit("the answer holds no object where the rule names one")
        return records[0]._replace(id=ident)

    def _read(self, body: bytes) -> Iterator[ReadRecord]:
        parsed = read_answer_body(self._plan, Media.JSON, body, self.operation)
        objects = self._selection.find(body, self.operation.endpoint.limits.json_depth).objects
        for item, located in zip(parsed.items, objects, strict=True):
            spots = tuple(
                Spot(one.field, one.start - located.start, one.end - located.start, one.value)
                for one in item.spots
            )
            content = body[located.start : located.end]
            yield ReadRecord(item.id or self._usual_id(content), content, spots)

    def _usual_id(self, content: bytes) -> str:
        """The member ``id`` of an object, where the rule of a list names no id."""
        raw = None if self.operation.response.id is not None else _members(content).get("id")
        value = None if raw is None else read_json_value(bytes(raw))
        return "" if value is None or value.text[:1] in ("", "{", "[") else value.text

    def _unfit(self, text: str) -> VaultError:
        return VaultError(Code.UNREADABLE_ANSWER, f"{self.operation.label}: {text}.")


def compare_records(
    direct: ReadRecord, proxied: ReadRecord, ignored: Collection[str], *, exact: bool = True
) -> RecordState | None:
    """Compare a record read on both sides; ``None`` if it changed in between.

    ``ignored``: fields without tokens. ``exact``: nothing else differs between the sides.
    """
    if [one.field for one in direct.spots] != [one.field for one in proxied.spots]:
        return None
    if exact and direct.rest != proxied.rest:
        return None
    pairs = [
        one.value == other.value
        for one, other in zip(direct.spots, proxied.spots, strict=True)
        if one.value and one.value.text and one.field not in ignored
    ]
    if not pairs:
        return RecordState.EMPTY
    if all(pairs):
        return RecordState.CLEAR
    return RecordState.MIXED if any(pairs) else RecordState.TOKENS


def changed_members(
    before: ReadRecord, after: ReadRecord, ruled: Collection[object]
) -> tuple[list[str], list[str]]:
    """The members of an object that are gone after an update, and those that hold something else;
    ``ruled`` members are no matter.
    """
    old, new = before.members, after.members
    lost = [name for name, raw in old.items() if name not in new and bytes(raw) != b"null"]
    other = [name for name in old if name in new and name not in ruled and old[name] != new[name]]
    return lost, other
