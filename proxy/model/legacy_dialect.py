"""Requests of the record-based family, in terms of its schema: one engine, two dialects
(specification, "Record-based family").

Such a request equals one of the model-based family on the schema ``records``, except for this:

- ``key`` is another name of ``record_key``, and ``range_key`` of ``range_key1``; both names may
  stand in a record that says the same twice, and not in one filter;
- a record says in which country it is kept; whoever reads a request checks that, and it is no
  field;
- ``version`` is what the caller stated of the record, and the service's own count of its versions
  where nothing was stated;
- ``created_at``, ``updated_at`` and ``expires_at`` can be asked for, too;
- what only point-of-presence clients say of a record has no name here.

So names are translated, the readers of the model-based family parse the result, and faults are
reported in the names that were sent.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import structs

from proxy.errors import Code, Detail, VaultError
from proxy.model.filter_language import EXCLUDING, OPS, OR
from proxy.model.filter_reader import read_aggregate, read_filter, read_find
from proxy.model.query import (
    CREATED_AT,
    EXPIRES_AT,
    UPDATED_AT,
    VERSION_FIELD,
    Aggregation,
    AnyOf,
    Compares,
    Equals,
    Query,
    Test,
)
from proxy.model.record import RecordDraft, RecordLimits
from proxy.model.record_reader import read_draft, read_drafts
from proxy.model.schema import RECORD_KEY, STATED_VERSION, TECHNICAL, Schema
from proxy.model.values import Unfit, ValueFaults, instant, step

COUNTRY: Final = "country"

#: Other names of fields, in requests and in answers.
ALIASES: Final[Mapping[str, str]] = {"key": RECORD_KEY, "range_key": "range_key1"}

#: Of fields that have no name here: such a one stands in no schema, so that readers know nothing of
#: it.
_NAMELESS: Final[dict[str, str]] = {name: f"{name}?" for name in TECHNICAL}
_QUERIED: Final[dict[str, str]] = {**ALIASES, **_NAMELESS}
_WRITTEN: Final[dict[str, str]] = {**_QUERIED, VERSION_FIELD: STATED_VERSION}
_INSTANTS: Final = (CREATED_AT, UPDATED_AT, EXPIRES_AT)

_MESSAGES: Final = {
    Code.INVALID_RECORD: "The record does not fit its schema.",
    Code.INVALID_FILTER: "The filter cannot be asked of records.",
}

_T = TypeVar("_T")


def parse_legacy_record(
    schema: Schema, raw: Any, *, partial: bool, limits: RecordLimits, pointer: str = ""
) -> RecordDraft:
    """As ``record_reader.read_draft``."""
    exchange = _Exchange(limits)
    record = exchange.record(raw, pointer)
    return exchange.read(
        lambda: read_draft(schema, record, partial=partial, limits=limits, pointer=pointer),
        Code.INVALID_RECORD,
    )


def read_records(
    schema: Schema, raw: Any, *, partial: bool, limits: RecordLimits, pointer: str = ""
) -> list[RecordDraft]:
    """As ``record_reader.read_drafts``."""
    exchange, records = _Exchange(limits), raw
    if isinstance(raw, list) and len(raw) <= limits.batch:
        records = [exchange.record(item, f"{pointer}/{number}") for number, item in enumerate(raw)]
    return exchange.read(
        lambda: read_drafts(schema, records, partial=partial, limits=limits, pointer=pointer),
        Code.INVALID_RECORD,
    )


def read_record_filter(
    schema: Schema, raw: Any, limits: RecordLimits, pointer: str = "/filter"
) -> tuple[Test, ...]:
    """As ``filter_reader.read_filter``."""
    exchange = _Exchange(limits)
    wanted, instants = exchange.filter(raw, pointer)
    tests = exchange.read(lambda: read_filter(schema, wanted, limits, pointer), Code.INVALID_FILTER)
    return (*_versions(tests), *instants)


def read_record_find(schema: Schema, raw: Mapping[str, Any], limits: RecordLimits) -> Query:
    """As ``filter_reader.read_find``; ``raw`` has no country any more."""
    exchange, content = _Exchange(limits), dict(raw)
    content["filter"], instants = exchange.filter(raw.get("filter", {}), "/filter")
    if isinstance(options := raw.get("options"), dict):
        content["options"] = {
            name: exchange.sort(value) if name == "sort" else value
            for name, value in options.items()
        }
    query = exchange.read(lambda: read_find(schema, content, limits), Code.INVALID_FILTER)
    return structs.replace(query, tests=(*_versions(query.tests), *instants))


def read_record_aggregate(
    schema: Schema, raw: Mapping[str, Any], limits: RecordLimits
) -> Aggregation | str:
    """As ``filter_reader.read_aggregate``; ``raw`` has no country any more."""
    exchange, content = _Exchange(limits), dict(raw)
    instants: Sequence[Test] = ()
    if "filter" in raw:
        content["filter"], instants = exchange.filter(raw["filter"], "/filter")
    if isinstance(metrics := raw.get("metrics"), dict):
        content["metrics"] = {name: _keyed(metric) for name, metric in metrics.items()}
    if isinstance(group_by := raw.get("group_by"), dict) and isinstance(
        keys := group_by.get("keys"), list
    ):
        content["group_by"] = {**group_by, "keys": [field_of_name(key) for key in keys]}
    aggregate = exchange.read(lambda: read_aggregate(schema, content, limits), Code.INVALID_FILTER)
    if isinstance(aggregate, str):
        return aggregate
    return Aggregation(
        aggregate.metrics, (*_versions(aggregate.tests), *instants), aggregate.keys, aggregate.limit
    )


def field_of_name(name: Any) -> Any:
    """The field that a name of this family means in a list of names; anything else as it is."""
    return _QUERIED.get(name, name) if isinstance(name, str) else name


def _native(names: Mapping[str, str], name: str) -> str:
    return names.get(name, name)


def _keyed(metric: Any) -> Any:
    return (
        {**metric, "key": field_of_name(metric["key"])}
        if isinstance(metric, dict) and "key" in metric
        else metric
    )


class _Exchange:
    """A request; ``places`` maps pointers of readers to those of the caller."""

    def __init__(self, limits: RecordLimits) -> None:
        self._limits = limits
        self._faults = ValueFaults(limits.faults)
        self._places: dict[str, str] = {}

    def record(self, raw: Any, pointer: str) -> Any:
        """A record in the names of the schema, without its country."""
        if not isinstance(raw, dict) or not (
            COUNTRY in raw or any(name in raw for name in _WRITTEN)
        ):
            return raw
        members: dict[str, Any] = {}
        for name, value in raw.items():
            native = _native(_WRITTEN, name)
            if name == COUNTRY:
                continue
            if native in members and members[native] != value:
                self._faults.add(
                    pointer + step(name),
                    f"Says something else than {self._sent(raw, native, name)}.",
                )
            members[native] = value
            self._renamed(pointer, native, name)
        return members

    def filter(self, raw: Any, pointer: str) -> tuple[Any, list[Test]]:
        """Return a filter in the schema's names without the instants, and the tests of those."""
        if not isinstance(raw, dict) or len(raw) > self._limits.conditions:
            return raw, []
        tests: list[Test] = []
        members = self._names(
            {name: value for name, value in raw.items() if name not in _INSTANTS}, pointer
        )
        for name in _INSTANTS:
            if name in raw:
                tests += self._instants(name, raw[name], pointer + step(name))
        if isinstance(choices := members.get(OR), list) and len(choices) <= self._limits.conditions:
            members[OR] = [
                self._names(item, f"{pointer}{step(OR)}/{number}")
                for number, item in enumerate(choices)
            ]
        return members, tests

    def sort(self, raw: Any) -> Any:
        """The order of a search in the names of the schema."""
        if not isinstance(raw, list):
            return raw
        pointer = "/options/sort"
        return [self._names(item, f"{pointer}/{number}") for number, item in enumerate(raw)]

    def read(self, read: Callable[[], _T], code: Code) -> _T:
        """Return the result of a reader of the model-based family.

        ``code`` is the kind of this family's own faults.
        """
        try:
            result = read()
        except VaultError as error:
            details = tuple(
                Detail(self._source(detail.source), detail.text) for detail in error.details
            )
            first = (
                error.code
                if error.code is not Code.PARTIAL_MATCH_DISABLED or not self._faults
                else code
            )
            raise VaultError(first, error.message, (*details, *self._faults.details)) from None
        if self._faults:
            raise self._faults.error(code, _MESSAGES[code])
        return result

    # ------------------------------------------------------------------ names

    def _names(self, raw: Any, pointer: str) -> Any:
        """An object whose members are the schema's fields; each may be asked for once."""
        if not isinstance(raw, dict) or not any(name in raw for name in _QUERIED):
            return raw
        members: dict[str, Any] = {}
        for name, value in raw.items():
            native = _native(_QUERIED, name)
            if native in members:
                self._faults.add(
                    pointer + step(name),
                    f"Cannot be combined with {self._sent(raw, native, name)}, which is the same.",
                )
            members[native] = value
            self._renamed(pointer, native, name)
        return members

    def _sent(self, raw: Mapping[str, Any], native: str, name: str) -> str:
        """By which other name the field was sent."""
        return next(
            other
            for other in (native, *ALIASES)
            if other != name and other in raw and _WRITTEN.get(other, other) == native
        )

    def _renamed(self, pointer: str, native: str, name: str) -> None:
        if native != name:
            self._places[pointer + step(native)] = pointer + step(name)

    def _source(self, pointer: str) -> str:
        """Translate a reader's pointer to the one that the caller sent."""
        at = pointer
        while at:
            if at in self._places:
                return self._places[at] + pointer[len(at) :]
            at = at.rpartition("/")[0]
        return pointer

    # ------------------------------------------------------------------ instants

    def _instants(self, name: str, raw: Any, pointer: str) -> list[Test]:
        if not isinstance(raw, dict):
            return [Equals(name, self._listed(raw, pointer))]
        tests: list[Test] = []
        if not raw:
            self._fault(pointer, "Has to hold an operator.")
        for op, value in raw.items():
            if op in OPS:
                tests.append(Compares(name, OPS[op], self._instant(value, pointer + step(op))))
            else:
                self._fault(
                    pointer + step(op),
                    f"Cannot be used here: instants are compared by {', '.join(OPS)}.",
                )
        for one, other in EXCLUDING:
            if one in raw and other in raw:
                self._fault(pointer + step(other), f"Cannot be combined with {one}.")
        return tests

    def _listed(self, raw: Any, pointer: str) -> tuple[int | None, ...]:
        if not isinstance(raw, list):
            return (None if raw is None else self._instant(raw, pointer),)
        if not raw:
            self._fault(pointer, "Must not be an empty array.")
        if len(raw) > self._limits.values:
            self._fault(pointer, f"Must not hold more than {self._limits.values} values.")
            return ()
        return tuple(
            [
                None if item is None else self._instant(item, f"{pointer}/{n}")
                for n, item in enumerate(raw)
            ]
        )

    def _instant(self, raw: Any, pointer: str) -> int:
        try:
            return instant(raw)
        except Unfit as fault:
            self._fault(pointer, fault.text)
            return 0

    def _fault(self, pointer: str, text: str) -> None:
        self._faults.add(pointer, text, Code.INVALID_FILTER)


# ---------------------------------------------------------------------- version


def _versions(tests: Sequence[Test]) -> list[Test]:
    """Apply the tests of ``version`` to the stated version, else to the service's own count."""
    return [
        _version(test)
        if isinstance(test, Equals | Compares) and test.field == VERSION_FIELD
        else test
        for test in tests
    ]


def _version(test: Equals | Compares) -> Test:
    unstated = Equals(STATED_VERSION, (None,))
    if isinstance(test, Compares):
        return AnyOf(((Compares(STATED_VERSION, test.op, test.value),), (unstated, test)))
    # every record has a version
    values = tuple(value for value in test.values if value is not None)
    stated = (
        Equals(STATED_VERSION, (*values, None), negated=True)
        if test.negated
        else Equals(STATED_VERSION, values)
    )
    return AnyOf(((stated,), (unstated, Equals(VERSION_FIELD, values, test.negated))))
