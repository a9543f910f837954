from decimal import Decimal

from proxy.api import wire
from proxy.api.wire import BY_ROUTE, HERE, api_status, error_answer
from proxy.errors import Code, VaultError
from proxy.model.record import Action, Attachment, Record
from proxy.model.rights import FULL, Redactor, Rights, VisibleRecord
from proxy.net.problem import STATUS
from tests.support.audit import audit_context
from tests.support.contacts import make_contacts
from tests.support.table import table

RECORD = Record(
    7,
    "k/1",
    {"id": "k/1", "sum": Decimal("0.10"), "note": None},
    2,
    1,
    1_700_000_000_123,
    None,
    Action.UPDATE,
    "c",
)
FILE = Attachment("f1", "a b.txt", "00", "text/plain", 3, 0, 1)


def shown(record: Record = RECORD) -> VisibleRecord:
    return FULL.render(record)


def test_a_decimal_keeps_its_digits():
    assert (
        wire.encode_json({"a": Decimal("0.10"), "b": Decimal(12345678901234567890)})
        == b'{"a":0.10,"b":12345678901234567890}'
    )


def test_a_write_answers_with_fields_and_instants():
    assert wire.written_json(shown()) == {
        "id": "k/1",
        "sum": Decimal("0.10"),
        "note": None,
        "created_at": "1970-01-01T00:00:00.001Z",
        "updated_at": "2023-11-14T22:13:20.123Z",
    }
    ending = Record(7, "k", {}, 1, 0, 0, 0)
    assert wire.written_json(shown(ending))["expires_at"] == "1970-01-01T00:00:00.000Z"


def test_fields_that_are_not_shown_as_they_are_are_named():
    assert wire.written_json(shown(), ["sum"])["meta"] == {"redacted_fields": ["sum"]}
    assert "meta" not in wire.written_json(shown())


async def test_a_page_names_them_where_there_are_any():
    records = (await make_contacts()).records
    assert wire.redacted_fields(records) == {}
    veiled = Rights(
        frozenset(),
        records.schema,
        frozenset(("name",)),
        {"name": Redactor(lambda *_: "x", "x".__eq__)},
    )
    assert wire.redacted_fields(records.under(veiled, None, audit_context())) == {
        "redacted_fields": ["name"]
    }


def test_a_search_adds_the_attachments():
    assert wire.found_json(shown(), "s", "id")["attachments"] == []
    record = Record(7, "k/1", {}, 1, 0, 0, attachments=(FILE,))
    (file,) = wire.found_json(shown(record), "a b", "id")["attachments"]
    assert file["download_link"] == "/api/models/a%20b/k%2F1/files/f1"
    assert (file["size"], file["updated_at"]) == (3, "1970-01-01T00:00:00.001Z")


def test_a_record_of_an_entity_shows_its_key():
    assert wire.found_json(shown(), "s", None)["record_key"] == "k/1"
    assert "record_key" not in wire.found_json(shown(), "s", "id")


def test_a_version_tells_who_and_what():
    assert wire.version_json(shown()) == {
        "version": 2,
        "action": "update",
        "at": "2023-11-14T22:13:20.123Z",
        "by": "c",
        "record": RECORD.fields,
    }


def test_a_page_counts_itself():
    answer = wire.page_pieces(iter([1, 2]), 2, 4, 9, {"unreadable": 1})
    assert (
        answer.body
        == b'{"data":[1,2],"meta":{"count":2,"limit":2,"offset":4,"total":9,"unreadable":1}}'
    )


def test_every_exception_is_one_and_belongs_to_an_operation():
    assert {code: status for code, status in HERE.items() if STATUS[code] == status} == {}
    assert [
        place
        for place, status in BY_ROUTE.items()
        if HERE.get(place[1], STATUS[place[1]]) == status
    ] == []


@table(
    ("operation", "code", "status"),
    [
        ("clone_record", Code.PARTIAL_MATCH_DISABLED, 403),
        ("find_records", Code.PARTIAL_MATCH_DISABLED, 401),
        ("clone_record", Code.NO_MATCH, 403),
        ("delete_records", Code.NO_MATCH, 404),
        ("clone_record", Code.CANNOT_OPEN, 422),
        ("", Code.INTERNAL, 500),
    ],
)
def test_statuses_are_those_of_the_specification(operation, code, status):
    assert api_status(operation, code) == status


def test_who_may_try_again_is_told_when():
    error = VaultError(Code.OVERLOADED, "Later.")
    assert error_answer("", error).headers == {"Retry-After": "1"}


def test_who_did_not_prove_itself_is_told_how():
    error = VaultError(Code.UNAUTHORIZED, "Who is it?")
    assert error_answer("", error).headers == {"WWW-Authenticate": "Bearer"}
    error.challenge = 'Bearer realm="domicile"'
    assert error_answer("", error).headers == {"WWW-Authenticate": 'Bearer realm="domicile"'}
