"""Queries on records of one schema, in terms of fields: checked and typed, not hashed.

``model.filter_reader`` makes it of a request; ``vault.records.query`` turns it into a question that
an engine understands. Values are in the clear and of the types of ``model.record``. Tests are
tagged, so that a question can be written down and read again (cursors).
"""

import enum
from typing import Any

import msgspec

#: Fields that every record has; a schema cannot have fields of these names.
KEY = "record_key"
VERSION_FIELD = "version"
CREATED_AT = "created_at"
UPDATED_AT = "updated_at"
EXPIRES_AT = "expires_at"


class Op(enum.StrEnum):
    """Comparisons of the filter language."""

    GT = "$gt"
    GTE = "$gte"
    LT = "$lt"
    LTE = "$lte"


class Equals(msgspec.Struct, frozen=True, tag=True):
    """The field has one of the values; ``None`` among them: or no value.

    ``negated``: has none of them.
    """

    field: str
    values: tuple[Any, ...]
    negated: bool = False


class Compares(msgspec.Struct, frozen=True, tag=True):
    """The field has a value, and it compares so."""

    field: str
    op: Op
    value: Any


class Like(msgspec.Struct, frozen=True, tag=True):
    """The text occurs in the field, whatever the letter case (Unicode case folding of normal
    forms).

    Several ``fields``: in one of them at least (``search_keys``). ``negated``: does not occur.
    """

    fields: tuple[str, ...]
    text: str
    negated: bool = False


class InJson(msgspec.Struct, frozen=True, tag=True):
    """At ``path`` of a JSON field stands the value, or an array that holds all the values.

    ``path`` has member names and element numbers from the root; the scalars are ``str``, ``int``,
    ``Decimal``, ``bool``, ``None``.
    """

    field: str
    path: tuple[str | int, ...]
    values: tuple[Any, ...]
    contains: bool  #: an array was given: the array there has to hold all of them


class AnyOf(msgspec.Struct, frozen=True, tag=True):
    """At least one of the alternatives holds; within one, all of its tests."""

    alternatives: tuple[tuple["Test", ...], ...]


Test = Equals | Compares | Like | InJson | AnyOf


class Sort(msgspec.Struct, frozen=True):
    """A sort key: a field, ``created_at``, ``updated_at`` or ``expires_at``."""

    field: str
    descending: bool = False


class Query(msgspec.Struct, frozen=True):
    """All tests hold; in this order, ties by age (older first).

    A missing value sorts before every other.
    """

    tests: tuple[Test, ...] = ()
    sort: tuple[Sort, ...] = ()
    limit: int = 100
    offset: int = 0
    next: str | None = None  #: the cursor of the page before


class MetricFunction(enum.StrEnum):
    """Aggregation functions."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


class MetricQuery(msgspec.Struct, frozen=True):
    """A metric of an aggregation. ``field`` is ``None`` only for ``count``."""

    name: str
    func: MetricFunction
    field: str | None = None


class Aggregation(msgspec.Struct, frozen=True):
    """Metrics over groups of records; without ``keys`` one group of all.

    ``limit`` groups a page.
    """

    metrics: tuple[MetricQuery, ...]
    tests: tuple[Test, ...] = ()
    keys: tuple[str, ...] = ()
    limit: int = 100
