"""Records of an application in its answers, for ``domicile adopt`` and ``release``, and the body
that writes one again.

They tell whether the application holds values or tokens at the ruled places. Pure.

A record is read twice, from the application itself and through the proxy. Where both are equal the
application holds the value, and where they differ a token: a token never equals its value.
"""

import enum
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor.json.tree import Located, read_json_value
from proxy.redactor.message import Media
from proxy.redactor.plan import make_plan
from proxy.redactor.redact import BodyObject, Spot, read_answer_body
from proxy.redactor.request_rules import ConditionSource
from proxy.redactor.rules import Endpoint, Entity, FieldRule, Operation, PatchKind
from proxy.redactor.select import Selection
from proxy.tokenization.base import Resolution

_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"


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
        bounds = [0, *(edge for one in self.spots for edge in (one.start, one.end))]
        return tuple(
            self.content[start:end]
            for start, end in zip(bounds[::2], [*bounds[1::2], len(self.content)], strict=True)
        )

    @property
    def sorted(self) -> tuple[object, tuple[Spot, ...]]:
        """The rest of the document and the places in it, as members sort: applications, and
        processes of one, may write them in any order.
        """
        marks = [f'"{_MARK}{number}"'.encode() for number in range(len(self.spots))]
        parts = chain(*zip_longest(self.rest, marks, fillvalue=b""))
        numbers: list[int] = []
        try:
            rest = _sorted_tree(msgspec.json.decode(b"".join(parts)), numbers)
        except msgspec.DecodeError:  # a place within a text
            return self.rest, self.spots
        return rest, tuple(self.spots[number] for number in numbers)

    @property
    def members(self) -> dict[str, msgspec.Raw]:
        return _members(self.content)


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

#: Begins what stands in for a place; no text of an application has it.
_MARK: Final = "\ue0d0\ue0d1"


def _sorted_tree(value: Any, numbers: list[int]) -> object:
    """The document with sorted members; ``numbers`` gets the numbers of the places in it."""
    if isinstance(value, dict):
        return [(name, _sorted_tree(value[name], numbers)) for name in sorted(value)]
    if isinstance(value, list):
        return [_sorted_tree(one, numbers) for one in value]
    if isinstance(value, str) and value.startswith(_MARK):
        numbers.append(int(value.removeprefix(_MARK)))
        return None
    return value


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
        if not all(one.id for one in records):
            raise self._unfit("a record of the answer has no id where the rule says, or at $.id")
        return records

    def record(self, ident: str, body: bytes) -> ReadRecord:
        """The one record of an answer. Raises ``VaultError`` as ``records``."""
        records = list(self._read(body))
        if len(records) != 1:
            raise self._unfit("the answer holds no object where the rule names one")
        return records[0]._replace(id=ident)

    def items(self, body: bytes) -> list[BodyObject]:
        """The objects of an answer with their places. Raises ``VaultError``."""
        try:
            return read_answer_body(self._plan, Media.JSON, body, self.operation).items
        except VaultError as error:
            why = error.message.partition(":")[0]
            raise self._unfit(f"the answer is not what the rule reads ({why})") from None

    def ids(self, body: bytes) -> Iterator[tuple[int, str]]:
        """The position of each object of an answer, and the id that the rule names."""
        for item, located in self._located(body):
            if item.id:
                yield located.start, item.id

    def _located(self, body: bytes) -> Iterator[tuple[BodyObject, Located]]:
        depth = self.operation.endpoint.limits.json_depth
        return zip(self.items(body), self._selection.find(body, depth).objects, strict=True)

    def _read(self, body: bytes) -> Iterator[ReadRecord]:
        for item, located in self._located(body):
            spots = tuple(
                Spot(one.field, one.start - located.start, one.end - located.start, one.value)
                for one in item.spots
            )
            content = body[located.start : located.end]
            named = self.operation.response.id is not None
            yield ReadRecord(item.id or ("" if named else _id_in(content)), content, spots)

    def _unfit(self, text: str) -> VaultError:
        return VaultError(Code.UNREADABLE_ANSWER, f"{self.operation.label}: {text}.")


def _id_in(content: bytes) -> str:
    """The id in the member ``id`` of an object; empty for none."""
    raw = _members(content).get("id")
    value = None if raw is None else read_json_value(bytes(raw))
    return "" if value is None or value.text[:1] in ("", "{", "[") else value.text


class NestedRecordReader(RecordReader):
    """Reads messages that hold objects of one or more entities, such as an order with a customer.

    A field of theirs is called ``entity.field``. A message that is an object itself has the id that
    the rule of that object names, another one its member ``id``.
    """

    def __init__(self, operation: Operation, parts: Sequence[Operation], message: Path) -> None:
        """``parts``: the operations on the objects. ``message``: selects each message.

        Raises ``VaultError`` as ``RecordReader``.
        """
        self._parts = [RecordReader(one) for one in parts]
        self.operation = operation
        self._message = Selection(message, ())

    def _read(self, body: bytes) -> Iterator[ReadRecord]:
        spots = sorted(
            (
                Spot(f"{part.operation.entity.name}.{one.field}", one.start, one.end, one.value)
                for part in self._parts
                for item in part.items(body)
                for one in item.spots
            ),
            key=lambda one: one.start,
        )
        starts = [one.start for one in spots]
        ids = {start: ident for part in self._parts for start, ident in part.ids(body)}
        for located in self._message.find(body, self.operation.endpoint.limits.json_depth).objects:
            start, end = located.start, located.end
            inside = spots[bisect_left(starts, start) : bisect_left(starts, end)]
            content = body[start:end]
            moved = tuple(
                Spot(one.field, one.start - start, one.end - start, one.value) for one in inside
            )
            yield ReadRecord(ids.get(start) or _id_in(content), content, moved)


def compare_records(
    direct: ReadRecord, proxied: ReadRecord, ignored: Collection[str], *, exact: bool = True
) -> RecordState | None:
    """Compare a record read on both sides; ``None`` if it changed in between.

    ``ignored``: fields without tokens. ``exact``: nothing else differs between the sides.
    """
    (rest, spots), (other_rest, others) = direct.sorted, proxied.sorted
    if [one.field for one in spots] != [one.field for one in others]:
        return None
    if exact and rest != other_rest:
        return None
    pairs = [
        one.value == other.value
        for one, other in zip(spots, others, strict=True)
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
    """The members of an object gone or changed after an update, but for ``ruled`` ones."""
    old, new = before.members, after.members
    lost = [name for name, raw in old.items() if name not in new and bytes(raw) != b"null"]
    other = [name for name in old if name in new and name not in ruled and old[name] != new[name]]
    return lost, other


class WrittenPlace(NamedTuple):
    """Place of what an update writes: the object, and its members that hold ruled places."""

    way: tuple[str, ...]  #: to the object, from the root of the body
    members: frozenset[str | int | PathStep]


@dataclass(frozen=True, slots=True)
class WalkPlan:
    """The operations of one application by which the records of an entity are gone through.

    A record is an object of the entity, or a message that holds objects of several.
    """

    entities: tuple[Entity, ...]  #: in a record; the named one first
    fields: Mapping[str, FieldRule]  #: of these, as ``ReadRecord`` names them
    listing: RecordReader
    reading: RecordReader
    update: Operation
    written: WrittenPlace
    ids: tuple[str, str]  #: placeholders of a record's id, in the paths of read and update
    target: str  #: of the first page of the list
    params: Mapping[str, str]  #: of the path of the list, by placeholder
    #: operations on the entities with what is done by them, or why nothing is
    steps: tuple[tuple[str, str], ...] = ()

    @property
    def entity(self) -> Entity:
        return self.entities[0]

    @property
    def endpoint(self) -> Endpoint:
        return self.update.endpoint

    @property
    def method(self) -> str:
        return self.update.methods[0] if self.whole else "PATCH"

    @property
    def whole(self) -> bool:
        """Whether the update carries the whole object, not its ruled members alone."""
        return "PATCH" not in self.update.methods

    @property
    def content_type(self) -> str:
        return content_type_of(self.update) or _JSON

    def refused_values(self, record: ReadRecord, region: str) -> Counter[str]:
        """Count the values by field that ``check`` refuses. ``region``: as of national telephone
        numbers; those are passed over where it is empty.
        """
        refused = Counter[str]()
        for name, value in record.values:
            rule = self.fields.get(name)
            check = rule.check if rule is not None else None
            if check is None or (check.kind == "phone" and not (check.regions or region)):
                continue
            refused[name] += bool(check.fault(value, region))
        return +refused

    def read_target(self, ident: str) -> str:
        return self._filled(self.reading.operation, self.ids[0], ident)

    def update_target(self, ident: str) -> str:
        return self._filled(self.update, self.ids[1], ident)

    def update_body(self, record: ReadRecord) -> bytes:
        """Return the body that writes a record's values: the whole object, or its ruled members."""
        content = record.content
        if not self.whole:
            members = self.written.members
            content = msgspec.json.encode(
                {name: raw for name, raw in record.members.items() if name in members}
            )
        return self._wrapped(content)

    def unchanging_body(self, record: ReadRecord) -> bytes:
        """Return a body that leaves an unchanged record as it is: the object, or no member."""
        return self._wrapped(record.content if self.whole else b"{}")

    def _wrapped(self, content: bytes) -> bytes:
        for step in reversed(self.written.way):
            content = b"{" + msgspec.json.encode(step) + b":" + content + b"}"
        return content

    def state(self, direct: ReadRecord, proxied: ReadRecord) -> RecordState | None:
        """Return the state of a record in the application; see ``compare_records``."""
        special = [one.operation.response.special for one in (self.listing, self.reading)]
        return compare_records(direct, proxied, self._without_tokens, exact=not any(special))

    def altered(self, sent: ReadRecord, direct: ReadRecord, proxied: ReadRecord) -> list[str]:
        """Return the fields that are equal on both sides but differ from the sent ones.

        The application has changed a token, which then resolves to nothing, or a value.
        """
        rows = [one._replace(spots=one.sorted[1]).values for one in (sent, direct, proxied)]
        if len({len(row) for row in rows}) != 1:
            return []
        return sorted(
            {old[0] for old, one, other in zip(*rows, strict=True) if one == other and one != old}
        )

    def changed(self, before: ReadRecord, after: ReadRecord) -> tuple[list[str], list[str]]:
        """Other members that are gone after an update, and those that changed with it."""
        return changed_members(before, after, self.written.members)

    def confirms(
        self, sent: ReadRecord, direct: ReadRecord, proxied: ReadRecord, changing: Collection[str]
    ) -> bool:
        """Whether a page shows a sent record whole, and as it was but for ``changing`` members."""
        lost, other = self.changed(sent, direct)
        wanted, present = (one._replace(spots=one.sorted[1]).values for one in (sent, proxied))
        return wanted == present and not lost and {*other} <= {*changing}

    def complete(self, record: ReadRecord) -> bool:
        """Whether a record of a page shows every field that the entity has."""
        return self.fields.keys() <= {one.field for one in record.spots}

    def masked(self, record: ReadRecord) -> bool:
        """Whether something may be the mask of a value: it has the sign of its field's masks."""
        fields = self.fields
        return any(fields[name].mask.character in value.text for name, value in record.values)

    @property
    def _without_tokens(self) -> set[str]:
        """Fields that look the same on both sides."""
        fields = self.fields.items()
        return {name for name, one in fields if one.shape.resolution is Resolution.CLEAR}

    def _filled(self, operation: Operation, placeholder: str, ident: str) -> str:
        values = {**self.params, placeholder: ident}
        return _PLACEHOLDER.sub(
            lambda match: quote(values[match[1]], safe="/" if match[2] else ""), operation.template
        )


_PLACEHOLDER: Final = re.compile(r"\{([^{}*]+)(\*?)\}")


def content_type_of(operation: Operation) -> str | None:
    """Return the content type of an update; ``None`` if none fulfils its conditions."""
    merge = operation.request.patch is PatchKind.MERGE
    if not operation.when:
        return _MERGE_PATCH if merge else _JSON
    types = {value.text for one in operation.when for value in one.values}
    if any(one.source is not ConditionSource.TYPE for one in operation.when):
        return None
    return next((one for one in (_JSON, _MERGE_PATCH) if one in types), None)


def preference(operation: Operation) -> int:
    """Order of updates: ruled members alone first, then the whole object."""
    return 0 if "PATCH" in operation.methods else 1 if "PUT" in operation.methods else 2
