from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code
from proxy.model.filter_language import Conditions, can_search, field_of, steps_of
from proxy.model.query import AnyOf, Compares, Equals, InJson, Like, Op, Test
from proxy.model.record import DEFAULTS, RecordLimits
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.model.values import ValueFaults
from proxy.redactor.jsonpath import parse_jsonpath
from tests.support.table import table

PLAIN, HASHED, SEALED = Storage.INDEXED, Storage.INDEXED_HASHED, Storage.ENCRYPTED
SCHEMA = Schema(
    "contact",
    (
        Field("id", FieldType.PRIMARY_KEY, HASHED),
        Field("city", FieldType.STRING, PLAIN),
        Field("name", FieldType.STRING, HASHED, partial_match=True),
        Field("mail", FieldType.STRING, HASHED),
        Field("note", FieldType.STRING, SEALED),
        Field("age", FieldType.INTEGER, PLAIN),
        Field("pin", FieldType.INTEGER, HASHED),
        Field("sum", FieldType.DECIMAL, PLAIN),
        Field("paid", FieldType.BOOLEAN, PLAIN),
        Field("at", FieldType.DATETIME, PLAIN),
        Field("born", FieldType.DATE, HASHED),
        Field("hour", FieldType.TIME, PLAIN),
        Field("extra", FieldType.JSON, HASHED),
        Field("blob", FieldType.JSON, SEALED),
    ),
)
AT = "2024-01-01T00:00:00.000Z"


def ask(raw: Any, limits: RecordLimits = DEFAULTS) -> tuple[tuple[Test, ...], ValueFaults]:
    faults = ValueFaults(limits.faults)
    return Conditions(SCHEMA, limits, faults).read(raw, "/filter"), faults


GOOD: list[tuple[Any, list[Test]]] = [
    ({}, []),
    ({"city": "Umeå"}, [Equals("city", ("Umeå",))]),
    ({"city": "x" * 1000}, [Equals("city", ("x" * 1000,))]),
    ({"city": None}, [Equals("city", (None,))]),
    ({"city": ["a", None, "a"]}, [Equals("city", ("a", None, "a"))]),
    ({"mail": "a@b"}, [Equals("mail", ("a@b",))]),
    ({"id": "c1"}, [Equals("record_key", ("c1",))]),
    ({"record_key": ["c1", "c2"]}, [Equals("record_key", ("c1", "c2"))]),
    ({"record_key": {"$not": "c1"}}, [Equals("record_key", ("c1",), True)]),
    ({"version": 3}, [Equals("version", (3,))]),
    ({"version": {"$not": [1, 2]}}, [Equals("version", (1, 2), True)]),
    ({"version": {"$gt": 1, "$not": 5}}, [Compares("version", Op.GT, 1), Equals("version", (5,), True)]),
    ({"age": 41, "paid": True}, [Equals("age", (41,)), Equals("paid", (True,))]),
    ({"age": Decimal("41.0")}, [Equals("age", (41,))]),
    ({"pin": [1, 2]}, [Equals("pin", (1, 2))]),
    ({"sum": [1, Decimal("2.5")]}, [Equals("sum", (Decimal(1), Decimal("2.5")))]),
    ({"at": AT, "born": "1980-01-01"}, [Equals("at", (AT,)), Equals("born", ("1980-01-01",))]),
    ({"hour": ["12:00:00"]}, [Equals("hour", ("12:00:00",))]),
    ({"city": {"$not": "a"}}, [Equals("city", ("a",), True)]),
    ({"name": {"$not": ["a", "b"]}}, [Equals("name", ("a", "b"), True)]),
    ({"mail": {"$not": None}}, [Equals("mail", (None,), True)]),
    ({"age": {"$gt": 1, "$lte": 9}}, [Compares("age", Op.GT, 1), Compares("age", Op.LTE, 9)]),
    ({"sum": {"$gte": Decimal("0.5")}}, [Compares("sum", Op.GTE, Decimal("0.5"))]),
    ({"sum": {"$lt": 5}}, [Compares("sum", Op.LT, Decimal(5))]),
    ({"city": {"$like": "m"}}, [Like(("city",), "m")]),
    ({"city": {"$like": "x" * 256}}, [Like(("city",), "x" * 256)]),
    ({"name": {"$like": "ann"}}, [Like(("name",), "ann")]),
    ({"name": {"$not": {"$like": "ann"}}}, [Like(("name",), "ann", True)]),
    ({"name": {"$like": "ann", "$not": "Ann Ek"}}, [Like(("name",), "ann"), Equals("name", ("Ann Ek",), True)]),
    ({"search_keys": "ann"}, [Like(("city", "name"), "ann")]),
    ({"search_keys": "x" * 200, "age": 5}, [Like(("city", "name"), "x" * 200), Equals("age", (5,))]),
    ({"search_keys": "ann", "version": 5}, [Like(("city", "name"), "ann"), Equals("version", (5,))]),
    (
        {"$or": [{"city": "a", "name": {"$like": "bcd"}}, {"record_key": ["c1"]}], "age": 1},
        [
            AnyOf(((Equals("city", ("a",)), Like(("name",), "bcd")), (Equals("record_key", ("c1",)),))),
            Equals("age", (1,)),
        ],
    ),
    ({"extra": {"$.a.b": 1}}, [InJson("extra", ("a", "b"), (1,), False)]),
    ({"extra": {"$['a b'][0].c": Decimal("1.5")}}, [InJson("extra", ("a b", 0, "c"), (Decimal("1.5"),), False)]),
    ({"extra": {"$.t": ["x", None, True]}}, [InJson("extra", ("t",), ("x", None, True), True)]),
    ({"extra": {"$.a": None, "$.b": ""}}, [InJson("extra", ("a",), (None,), False), InJson("extra", ("b",), ("",), False)]),
]  # fmt: skip

#: A filter, and where its faults are.
BAD: list[tuple[Any, list[str]]] = [
    ([], ["/filter"]),
    (None, ["/filter"]),
    ("x", ["/filter"]),
    ({"nobody": 1}, ["/filter/nobody"]),
    ({"a/b~": 1}, ["/filter/a~1b~0"]),
    ({"created_at": AT}, ["/filter/created_at"]),
    ({"attachments": []}, ["/filter/attachments"]),
    ({"city": 1}, ["/filter/city"]),
    ({"city": []}, ["/filter/city"]),
    ({"city": {}}, ["/filter/city"]),
    ({"city": ["a", 1, ["b"], {"$like": "a"}]}, ["/filter/city/1", "/filter/city/2", "/filter/city/3"]),
    ({"city": "a\0"}, ["/filter/city"]),
    ({"note": "x"}, ["/filter/note"]),
    ({"note": {"$like": "xyz"}}, ["/filter/note"]),
    ({"id": 5}, ["/filter/id"]),
    ({"age": "41"}, ["/filter/age"]),
    ({"age": True}, ["/filter/age"]),
    ({"age": Decimal("1.5")}, ["/filter/age"]),
    ({"age": 2**63}, ["/filter/age"]),
    ({"sum": Decimal("0.00001")}, ["/filter/sum"]),
    ({"paid": 1}, ["/filter/paid"]),
    ({"at": "2024-01-01"}, ["/filter/at"]),
    ({"born": "1980-13-01"}, ["/filter/born"]),
    ({"hour": "12:00"}, ["/filter/hour"]),
    ({"version": "1"}, ["/filter/version"]),
    ({"age": {"$gt": 1, "$gte": 2}}, ["/filter/age/$gte"]),
    ({"age": {"$lte": 1, "$lt": 2}}, ["/filter/age/$lte"]),
    ({"age": {"$gt": None}}, ["/filter/age/$gt"]),
    ({"age": {"$gt": [1]}}, ["/filter/age/$gt"]),
    ({"age": {"$gt": "1", "$lt": "2"}}, ["/filter/age/$gt", "/filter/age/$lt"]),
    ({"age": {"$not": 1}}, ["/filter/age/$not"]),
    ({"age": {"$like": "1"}}, ["/filter/age/$like"]),
    ({"pin": {"$gt": 1}}, ["/filter/pin/$gt"]),
    ({"city": {"$gt": "a"}}, ["/filter/city/$gt"]),
    ({"born": {"$not": "1980-01-01"}}, ["/filter/born/$not"]),
    ({"paid": {"$not": True}}, ["/filter/paid/$not"]),
    ({"city": {"$eq": "a", "$regex": "b"}}, ["/filter/city/$eq", "/filter/city/$regex"]),
    ({"city": {"$like": ""}}, ["/filter/city/$like"]),
    ({"city": {"$like": " "}}, ["/filter/city/$like"]),
    ({"city": {"$like": "x" * 257}}, ["/filter/city/$like"]),
    ({"city": {"$like": ["a"]}}, ["/filter/city/$like"]),
    ({"city": {"$like": None}}, ["/filter/city/$like"]),
    ({"name": {"$like": "ab"}}, ["/filter/name/$like"]),
    ({"name": {"$like": " ab "}}, ["/filter/name/$like"]),
    ({"name": {"$like": "x" * 201}}, ["/filter/name/$like"]),
    ({"name": {"$not": {}}}, ["/filter/name/$not"]),
    ({"name": {"$not": {"$not": "a"}}}, ["/filter/name/$not"]),
    ({"name": {"$not": {"$like": "abc", "$not": "a"}}}, ["/filter/name/$not"]),
    ({"name": {"$not": {"$like": "ab"}}}, ["/filter/name/$not/$like"]),
    ({"name": {"$not": []}}, ["/filter/name/$not"]),
    ({"search_keys": "ab"}, ["/filter/search_keys"]),
    ({"search_keys": "x" * 201}, ["/filter/search_keys"]),
    ({"search_keys": ["abc"]}, ["/filter/search_keys"]),
    ({"search_keys": {"$not": "abc"}}, ["/filter/search_keys"]),
    ({"search_keys": "abc", "city": "a"}, ["/filter/search_keys"]),
    ({"mail": "a", "search_keys": "abc"}, ["/filter/search_keys"]),
    ({"search_keys": "abc", "record_key": "c1"}, ["/filter/search_keys"]),
    ({"search_keys": "abc", "$or": [{"city": "a"}, {"city": "b"}]}, ["/filter/search_keys"]),
    ({"$or": {}}, ["/filter/$or"]),
    ({"$or": [{"city": "a"}]}, ["/filter/$or"]),
    ({"$or": [{"city": "a"}, {}]}, ["/filter/$or/1"]),
    ({"$or": [{"city": "a"}, "b"]}, ["/filter/$or/1"]),
    ({"$or": [{"city": "a"}, {"$or": [{"city": "a"}, {"city": "b"}]}]}, ["/filter/$or/1/$or"]),
    ({"$or": [{"search_keys": "abc"}, {"city": "a"}]}, ["/filter/$or/0/search_keys"]),
    ({"$or": [{"age": 1}, {"version": 1}]}, ["/filter/$or/0/age", "/filter/$or/1/version"]),
    ({"$or": [{"extra": {"$.a": 1}}, {"nobody": 1}]}, ["/filter/$or/0/extra", "/filter/$or/1/nobody"]),
    ({"extra": "a"}, ["/filter/extra"]),
    ({"extra": {}}, ["/filter/extra"]),
    ({"extra": None}, ["/filter/extra"]),
    ({"extra": {"$not": {"$.a": 1}}}, ["/filter/extra/$not"]),
    ({"extra": {"$": 1, "a": 1, "$.*": 1}}, ["/filter/extra/$", "/filter/extra/a", "/filter/extra/$.*"]),
    ({"extra": {"$..a": 1, "$.a[*]": 1, "$.a[-1]": 1}}, ["/filter/extra/$..a", "/filter/extra/$.a[*]", "/filter/extra/$.a[-1]"]),
    ({"extra": {"$.a": {"$gt": 1}}}, ["/filter/extra/$.a"]),
    ({"extra": {"$.a": []}}, ["/filter/extra/$.a"]),
    ({"extra": {"$.a": [1, [2], "\0"]}}, ["/filter/extra/$.a/1", "/filter/extra/$.a/2"]),
    ({"blob": {"$.a": 1}}, ["/filter/blob"]),
    ({"nobody": 1, "age": "x", "city": {"$like": 5}}, ["/filter/nobody", "/filter/age", "/filter/city/$like"]),
]  # fmt: skip


@table("raw, expected", GOOD)
def test_a_filter_becomes_tests(raw, expected):
    tests, faults = ask(raw)
    assert faults.details == []
    assert list(tests) == expected


@table("raw, places", BAD)
def test_what_cannot_be_asked_is_refused_with_its_place(raw, places):
    faults = ask(raw)[1]
    assert [detail.source for detail in faults.details] == places
    assert faults.codes == {Code.INVALID_FILTER}


@table(
    "raw",
    [{"mail": {"$like": "abc"}}, {"mail": {"$not": {"$like": "abc"}}}, {"id": {"$like": "abc"}},
     {"$or": [{"mail": {"$like": "abc"}}, {"city": "a"}]}],
)  # fmt: skip
def test_partial_match_that_is_off_has_a_code_of_its_own(raw):
    faults = ask(raw)[1]
    assert (len(faults.details), faults.codes) == (1, {Code.PARTIAL_MATCH_DISABLED})


def test_a_schema_without_anything_to_search_has_search_keys_off():
    faults = ValueFaults(9)
    Conditions(Schema("s", (Field("id", FieldType.PRIMARY_KEY, HASHED),)), DEFAULTS, faults).read(
        {"search_keys": "abc"}, ""
    )
    assert faults.codes == {Code.PARTIAL_MATCH_DISABLED}


def test_the_primary_key_is_searched_where_its_schema_says_so():
    schema = Schema("s", (Field("id", FieldType.PRIMARY_KEY, HASHED, partial_match=True),))
    faults = ValueFaults(9)
    assert Conditions(schema, DEFAULTS, faults).read({"search_keys": "abc"}, "") == (
        Like(("record_key",), "abc"),
    )
    assert Conditions(schema, DEFAULTS, faults).read({"id": {"$like": "abc"}}, "") == (
        Like(("record_key",), "abc"),
    )
    assert not faults


def test_which_fields_can_be_searched():
    assert [field.name for field in SCHEMA.fields if can_search(field)] == ["city", "name"]


def test_records_of_a_schema_without_a_primary_key_have_a_record_key():
    found = field_of(Schema("s", (Field("a"),)), "record_key")
    assert found is not None
    assert found.type is FieldType.PRIMARY_KEY
    assert field_of(SCHEMA, "record_key") is SCHEMA.fields[0]


def test_a_filter_has_bounds():
    limits = RecordLimits(conditions=3, values=4)
    assert not ask({"age": [1, 2, 3, 4], "$or": [{"city": "a"}, {"city": "b"}]}, limits)[1]
    assert [
        d.source
        for d in ask({"age": 1, "sum": 1, "$or": [{"city": "a"}, {"city": "b"}]}, limits)[1].details
    ] == ["/filter"]
    assert [d.source for d in ask({"age": [1, 2, 3, 4, 5]}, limits)[1].details] == ["/filter"]


def test_no_text_repeats_a_value():
    marker = "Zaphod77"
    raw = dict.fromkeys(
        ("age", "sum", "paid", "at", "born", "hour", "extra", "note", "version"), marker
    )
    faults = ask({**raw, "city": {"$like": marker * 100, "$not": {"$x": marker}}})[1]
    assert len(faults.details) == 11
    assert marker not in str(faults.details)


NAMES = st.text(st.characters(codec="utf-8", min_codepoint=32), max_size=8)


@st.composite
def paths(draw):
    text = "$"
    for _ in range(draw(st.integers(0, 4))):
        name = draw(NAMES)
        quoted = name.replace("\\", "\\\\")
        text += draw(
            st.sampled_from(
                ["['" + quoted.replace("'", "\\'") + "']", '["' + quoted.replace('"', '\\"') + '"]', "." + name, f"[{len(name)}]", "." + name[:1] + "x"]
            )
        )  # fmt: skip
    return text


@given(paths())
def test_paths_are_read_as_the_parser_of_selectors_reads_them(text):
    found = steps_of(text)
    try:
        expected = parse_jsonpath(text)
    except ValueError:
        assert found is None or not text.isascii()
        return
    single = all(isinstance(part, str | int) for part in expected) and expected
    assert found == (expected if single else None)


def test_names_beyond_ascii_need_no_quotes():
    assert steps_of("$.ålder.x") == ("ålder", "x")
    assert steps_of("$.a b") is None


class Unread(list[Any]):
    """Values that nobody may look at."""

    def __iter__(self) -> Any:
        raise AssertionError("there are too many to look at each")


@table(
    ("raw", "place"),
    [
        ({"city": Unread(["x"] * 1001)}, "/filter"),
        ({"city": {"$not": Unread(["x"] * 1001)}}, "/filter"),
        ({"extra": {"$.a": Unread([1] * 1001)}}, "/filter"),
        ({"$or": Unread([{"city": "x"}] * 201)}, "/filter/$or"),
        ({"extra": {f"$.a{number}": 1 for number in range(201)}}, "/filter/extra"),
        ({f"unknown{number}": 1 for number in range(201)}, "/filter"),
        (
            {"$or": [{"city": "x"}, {f"unknown{number}": 1 for number in range(201)}]},
            "/filter/$or/1",
        ),
    ],
)
def test_what_is_over_a_limit_is_refused_before_each_of_it_is_read(raw: Any, place: str) -> None:
    _, faults = ask(raw)
    assert [pointer for pointer, _ in faults.details] == [place]
