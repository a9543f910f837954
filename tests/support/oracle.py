"""What a find or an aggregation has to answer, said a second time: over plain records, by the words
of the specification.

Nothing of the program's own reading, asking or hashing is used here, so that a mistake in it cannot
hide.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from proxy.model.schema import Field, FieldType, Schema, Storage

TEXTS = (FieldType.STRING, FieldType.PRIMARY_KEY)
_MISSING = object()


@dataclass
class Plain:
    """A record as its caller knows it."""

    key: str
    fields: dict[str, Any]
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None = None


def norm(text: str) -> str:
    """The normal form of texts."""
    before = None
    while text != before:
        before, text = text, unicodedata.normalize("NFKC", text).strip()
    return text


def _folded(field: Field, text: str) -> str:
    folded = norm(text).casefold()
    return folded if field.storage is Storage.INDEXED else norm(folded)


def _comparable(field: Field, value: Any) -> Any:
    return norm(value) if field.type is FieldType.STRING and value is not None else value


def _searchable(field: Field) -> bool:
    if field.type is FieldType.STRING and field.storage is Storage.INDEXED:
        return True
    return field.type in TEXTS and field.storage is Storage.INDEXED_HASHED and field.partial_match


def _held(field: Field, value: Any, text: str) -> bool:
    return value is not None and _folded(field, text) in _folded(field, value)


class Oracle:
    """Answers requests over the records of one schema; ``records`` in the order in which they were
    created.
    """

    def __init__(self, schema: Schema, records: Sequence[Plain], now: int) -> None:
        self.schema = schema
        self.fields = {field.name: field for field in schema.fields}
        self.primary = next(field for field in schema.fields if field.type is FieldType.PRIMARY_KEY)
        self.records = [
            record for record in records if record.expires_at is None or record.expires_at > now
        ]

    # ------------------------------------------------------------------ find

    def find(self, request: dict[str, Any]) -> tuple[list[str], int]:
        """The keys of the page, and how many there are in all."""
        options = request.get("options", {})
        found = [
            record for record in self.records if self.matches(request.get("filter", {}), record)
        ]
        for key in reversed(options.get("sort", [])):
            ((name, direction),) = key.items()
            found.sort(key=self._order(name), reverse=direction == "desc")
        offset, limit = options.get("offset", 0), options.get("limit", 100)
        return [record.key for record in found[offset : offset + limit]], len(found)

    def _order(self, name: str) -> Callable[[Plain], tuple[bool, Any]]:
        def order(record: Plain) -> tuple[bool, Any]:
            value = self._value(record, name)
            return (False, 0) if value is None else (True, _comparable(self._field(name), value))

        return order

    def _field(self, name: str) -> Field:
        if name == "record_key":
            return self.primary
        return self.fields.get(name) or Field(name, FieldType.INTEGER, Storage.INDEXED)

    def _value(self, record: Plain, name: str) -> Any:
        if name in self.fields:
            return record.fields.get(name)
        return record.key if name == "record_key" else getattr(record, name)

    # ------------------------------------------------------------------ filters

    def matches(self, where: dict[str, Any], record: Plain) -> bool:
        """Whether a filter as it is sent holds for a record."""
        return all(self._member(name, asked, record) for name, asked in where.items())

    def _member(self, name: str, asked: Any, record: Plain) -> bool:
        if name == "$or":
            return any(self.matches(alternative, record) for alternative in asked)
        if name == "search_keys":
            fields = [field for field in self.schema.fields if _searchable(field)]
            return any(_held(field, record.fields.get(field.name), asked) for field in fields)
        field, value = self._field(name), self._value(record, name)
        if field.type is FieldType.JSON:
            return all(_in_document(value, path, wanted) for path, wanted in asked.items())
        if isinstance(asked, dict):
            return all(
                self._operator(field, value, operator, operand)
                for operator, operand in asked.items()
            )
        return _equal(field, value, asked)

    def _operator(self, field: Field, value: Any, operator: str, operand: Any) -> bool:
        if operator == "$not":
            if isinstance(operand, dict):
                return not _held(field, value, operand["$like"])
            return not _equal(field, value, operand)
        if operator == "$like":
            return _held(field, value, operand)
        if value is None:
            return False
        return bool(
            {
                "$gt": value > operand,
                "$gte": value >= operand,
                "$lt": value < operand,
                "$lte": value <= operand,
            }[operator]
        )

    # ------------------------------------------------------------------ aggregation

    def aggregate(self, request: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Every group with its keys and its metrics, in no order."""
        names = request.get("group_by", {}).get("keys", [])
        groups: dict[tuple[Any, ...], list[Plain]] = {} if names else {(): []}
        for record in self.records:
            if self.matches(request.get("filter", {}), record):
                place = tuple(
                    _comparable(self._field(name), self._value(record, name)) for name in names
                )
                groups.setdefault(place, []).append(record)
        return [
            (
                {
                    name: self._shown(name, cell, members)
                    for name, cell in zip(names, place, strict=True)
                },
                {
                    name: self._metric(metric, members)
                    for name, metric in request["metrics"].items()
                },
            )
            for place, members in groups.items()
        ]

    def _shown(self, name: str, cell: Any, members: list[Plain]) -> Any:
        field = self._field(name)
        hashed = field.type is FieldType.PRIMARY_KEY or field.storage is Storage.INDEXED_HASHED
        return self._value(members[0], name) if hashed else cell

    def _metric(self, metric: dict[str, Any], members: list[Plain]) -> Any:
        func = metric["func"].lower()
        if func == "count":
            return len(members)
        values = [
            Fraction(value)
            for record in members
            if (value := record.fields.get(metric["key"])) is not None
        ]
        if func == "sum":
            return sum(values, Fraction(0))
        if not values:
            return None
        if func == "avg":
            return round(sum(values, Fraction(0)) / len(values), 10)
        return min(values) if func == "min" else max(values)


def _equal(field: Field, value: Any, asked: Any) -> bool:
    wanted = asked if isinstance(asked, list) else [asked]
    return any(_comparable(field, value) == _comparable(field, one) for one in wanted)


def _in_document(document: Any, path: str, asked: Any) -> bool:
    """``path`` in the simple spelling of the tests: names after points, numbers in brackets."""
    found = document
    for step in path.removeprefix("$.").replace("[", ".[").split("."):
        found = _below(found, int(step[1:-1]) if step.startswith("[") else step)
    if isinstance(asked, list):
        return isinstance(found, list) and all(
            any(_same(item, one) for item in found) for one in asked
        )
    return _same(found, asked) or (
        isinstance(found, list) and any(_same(item, asked) for item in found)
    )


def _below(value: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else _MISSING
    return value.get(step, _MISSING) if isinstance(value, dict) else _MISSING


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: numbers by value, texts by normal form, true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, str) and isinstance(other, str):
        return norm(one) == norm(other)
    numbers = (int, Decimal)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return one == other
    return one is None and other is None
