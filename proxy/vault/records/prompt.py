"""Records that are found at once: by a key, or few of them, in an engine that nobody waits for.

Nothing is told of what is found (``Records.note``), and whatever is unusual is ``None``: the
general way (``find``) finds the same, and is the oracle.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from proxy.errors import VaultError
from proxy.model import read_find
from proxy.model.query import KEY, Equals, Query
from proxy.model.record import Record, RecordLimits
from proxy.model.schema import FieldType
from proxy.storage.query import MATCH_ALL, All, Is, Select
from proxy.storage.rows import Row
from proxy.vault.collection import LONG
from proxy.vault.records.find import FoundPage, Render, cursor_behind
from proxy.vault.records.opening import remember_shown, shown_lately
from proxy.vault.records.repository import Records

#: Shapes of questions that are kept for one schema, and characters of the options of each.
_SHAPES: Final = 256
_LONGEST: Final = 200

#: A filter, and options, that were not sent.
_NOTHING: Final[Mapping[str, Any]] = {}

_new: Final = tuple.__new__


class PromptQuestion(NamedTuple):
    """A question for every record by its age, or for those with one value of a text."""

    query: Query  #: as it was read, perhaps with another value
    field: str  #: that has the value; empty: every record is asked for
    column: str


def question_of(
    records: Records, content: Any, limits: RecordLimits
) -> tuple[PromptQuestion, str] | None:
    """The question that the body of a find asks, and the value; read once for each of its shapes.

    ``None``: it is another kind of question, or has faults.
    """
    if type(content) is not dict:
        return None
    tests, options = content.get("filter", _NOTHING), content.get("options", _NOTHING)
    name, value = None, ""
    if type(tests) is dict and len(tests) == 1:
        ((name, value),) = tests.items()
    if (tests and name is None) or type(value) is not str or "\0" in value:
        return None
    if name in records.collection.state.filling:
        return None  # it is refused
    shape = name, type(tests), tuple(content), repr(options)
    if len(shape[3]) > _LONGEST:
        return None
    if shape not in records.prepared:
        if len(records.prepared) >= _SHAPES:
            records.prepared.clear()
        records.prepared[shape] = _read(records, content, limits)
    question: PromptQuestion | None = records.prepared[shape]
    return None if question is None else (question, value)


def _read(records: Records, content: Any, limits: RecordLimits) -> PromptQuestion | None:
    """The question of a body with one value, or none; ``None``: it is refused, or another kind."""
    try:
        query = read_find(records.schema, content, limits)
    except VaultError:
        return None
    if query.sort or query.next is not None:
        return None
    if not query.tests:
        return PromptQuestion(query, "", "")
    test = query.tests[0]
    if not isinstance(test, Equals) or test.field == KEY:
        return None  # a key is looked up
    text = records.schema.field(test.field).type is FieldType.STRING
    return PromptQuestion(query, test.field, records.column(test.field)) if text else None


def page_at_once(
    records: Records,
    question: tuple[PromptQuestion, str],
    asker: tuple[str, Render[bytes]],
    room: int,
) -> tuple[FoundPage[bytes], list[str]] | None:
    """The page of a question, and the keys of its records. Raises ``VaultError`` as ``page_of``.

    ``asker``: the client, and what renders records for everybody who is shown them whole; ``room``:
    as ``PageAsker`` has it.
    """
    (query, field, column), value = question
    collection, where = records.collection, MATCH_ALL
    store = collection.store.at_once
    if store is None:
        return None
    cell = records.cell(field, value) if field else None
    if field:
        where = _new(All, ((_new(Is, (column, (cell,), False)),),))
    ends = query.limit, query.offset, True, None, room, None
    page = store.frequent(collection.table, _new(Select, (where, collection.clock(), (), *ends)))
    if page is None or (page.more and (field or len(page.rows) < query.limit)):
        return None
    opened = _opened(records, page.rows, asker[1])
    if opened is None:
        return None
    texts: list[bytes] = []
    keys: list[str] = []
    for record, text in opened:
        stored = record.fields.get(field) if field else value
        if stored != value and (type(stored) is not str or records.cell(field, stored) != cell):
            return None  # it is no other spelling of the value either
        texts.append(text)
        keys.append(record.key or "")
    more = None
    if page.more:
        last = (page.rows[-1].rid,), page.total
        more = cursor_behind(records, query, asker[0], last)
    return FoundPage(texts, page.total, 0, more), keys


def record_at_once(
    records: Records, key: str, render: Render[bytes]
) -> tuple[Record, bytes] | None:
    """The record of that key, and as it is rendered. Raises ``VaultError`` as ``record_of_key``."""
    collection = records.collection
    store = collection.store.at_once
    digest = collection.key_hash(key)
    if store is None or type(digest) is not bytes or collection.shapes:
        return None
    if store.has_files(collection.table):
        return None
    row = store.row_by_key(collection.table, digest)
    if row is None or row.expires_at is not None or row.key_sealed is not None:
        return None
    if (before := shown_lately(records, render, (row,)).get(row.rid)) is not None:
        return before
    if len(row.body) > LONG:
        return None
    record = records.opened(row)
    return record, render(record)


def _opened(
    records: Records, rows: Sequence[Row], render: Render[bytes]
) -> list[tuple[Record, bytes]] | None:
    """The records of rows as they are shown; ``None``: a row is long, or has no key of its own."""
    lately = shown_lately(records, render, rows)
    rendered: list[tuple[Record, bytes]] = []
    fresh: list[tuple[Record, bytes]] = []
    for row in rows:
        one = lately.get(row.rid)
        if one is None:
            if len(row.body) > LONG:
                return None
            record = records.opened(row)
            fresh.append(one := (record, render(record)))
        if one[0].key is None:
            return None
        rendered.append(one)
    remember_shown(records, render, rows, fresh)
    return rendered
