"""Whatever JSON a caller sends: it is read, or refused with its places and without its values;
never anything else.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.model.filter_reader import read_aggregate, read_find
from proxy.model.query import Aggregation
from proxy.model.record import DEFAULTS
from proxy.model.record_reader import read_draft, read_drafts
from tests.support.effort import examples
from tests.unit.model.test_filter_language import SCHEMA

MARK = "Zaphod"
NAMES = [field.name for field in SCHEMA.fields]
WORDS = [
    *NAMES, "record_key", "version", "search_keys", "$or", "$not", "$like", "$gt", "$lte", "$.a", "$['b'][0]", "filter", "options",
    "limit", "offset", "sort", "metrics", "func", "key", "group_by", "keys", "next", "cursor", "expires_at", "created_at", "x/y~z",
]  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.decimals(allow_nan=False, allow_infinity=False),
    st.sampled_from([Decimal("1E+400000"), Decimal("-1E-400000"), Decimal("0E+9999"), "asc", "desc", "sum", "COUNT", *NAMES]),
    st.sampled_from(["", "\0", "2024-02-29", "2024-02-30T00:00:00.000Z", "23:59:59", "9999-12-31T23:59:59-23:59"]),
    st.text(max_size=300).map(lambda text: MARK + text),
)  # fmt: skip
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inside: st.one_of(
        st.lists(inside, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), inside, max_size=5),
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(WORDS), DOCUMENTS, max_size=5)
CODES = {
    Code.INVALID_RECORD, Code.INVALID_FILTER, Code.INVALID_OPTIONS, Code.INVALID_INPUT, Code.BATCH_TOO_LARGE,
    Code.PARTIAL_MATCH_DISABLED,
}  # fmt: skip


def found(document: Any, pointer: str) -> bool:
    """Whether a JSON Pointer leads somewhere in the document, or to a member that is missing from
    an object there.
    """
    steps = pointer.split("/")[1:]
    for number, step in enumerate(steps):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and name.isdigit() and int(name) < len(document):
            document = document[int(name)]
        elif isinstance(document, dict) and name in document:
            document = document[name]
        else:
            return number == len(steps) - 1
    return True


def answered(read: Callable[[Any], Any], raw: Any) -> Any:
    """What was read, or ``None``; fails when it was refused in another way than callers are told."""
    try:
        return read(raw)
    except VaultError as refusal:
        error = refusal
    assert error.code in CODES
    assert error.details
    assert MARK not in error.message + "".join(detail.text for detail in error.details)
    assert all(found(raw, detail.source) for detail in error.details), (raw, error.details)
    return None


@examples(60)
@given(st.one_of(OBJECTS, DOCUMENTS))
def test_a_record_is_read_or_refused(raw):
    answered(lambda document: read_draft(SCHEMA, document, partial=False, limits=DEFAULTS), raw)
    answered(lambda document: read_draft(SCHEMA, document, partial=True, limits=DEFAULTS), raw)
    answered(
        lambda document: read_drafts(SCHEMA, document, partial=False, limits=DEFAULTS),
        [raw, {"id": "a"}, {"id": "a"}],
    )


@examples(100)
@given(OBJECTS, DOCUMENTS)
def test_a_search_is_read_or_refused(where, options):
    answered(
        lambda document: read_find(SCHEMA, document, DEFAULTS),
        {"filter": where, "options": options},
    )
    answered(
        lambda document: read_find(SCHEMA, document, DEFAULTS),
        {"filter": {"$or": [where, where], **where}},
    )


@examples(60)
@given(OBJECTS, DOCUMENTS, st.lists(st.sampled_from(NAMES), max_size=3))
def test_an_aggregation_is_read_or_refused_and_can_be_written_down(where, metrics, keys):
    number = {"n": {"func": "count"}}
    answered(
        lambda document: read_aggregate(SCHEMA, document, DEFAULTS),
        {"metrics": metrics, "filter": where},
    )
    raw = {"metrics": number, "filter": where, "group_by": {"keys": keys}}
    question = answered(lambda document: read_aggregate(SCHEMA, document, DEFAULTS), raw)
    if question is not None:
        written = msgspec.json.Encoder(decimal_format="number").encode(question)
        assert msgspec.json.Decoder(Aggregation, float_hook=Decimal).decode(written) == question


@examples(40)
@given(st.data())
def test_what_is_read_is_read_the_same_again(data):
    kinds = {
        "id": st.text(min_size=1, max_size=128), "city": st.text(max_size=256), "age": st.integers(-(2**63), 2**63 - 1),
        "sum": st.decimals(-(10**11), 10**11, places=4), "paid": st.booleans(), "born": st.dates().map(str),
        "hour": st.times().map(lambda time: time.isoformat("seconds")[:8]),
    }  # fmt: skip
    raw = {
        name: data.draw(kind)
        for name, kind in kinds.items()
        if name == "id" or data.draw(st.booleans())
    }
    draft = answered(
        lambda document: read_draft(SCHEMA, document, partial=False, limits=DEFAULTS), raw
    )
    if any("\0" in value for value in raw.values() if isinstance(value, str)):
        assert draft is None
        return
    assert draft.fields == raw
    written = msgspec.json.Encoder(decimal_format="number").encode(draft.fields)
    again = msgspec.json.Decoder(float_hook=Decimal).decode(written)
    assert read_draft(SCHEMA, again, partial=False, limits=DEFAULTS) == draft
