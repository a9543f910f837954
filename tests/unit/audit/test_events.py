import json
from typing import Any

import pytest

from proxy.audit.events import (
    MEMBERS,
    MOST_RECORDS,
    AuditContext,
    EventKind,
    encode_event,
    reveal_line,
    reveal_parts,
)
from tests.support.audit import audit_context
from tests.support.table import table


def lines(context: AuditContext) -> list[dict[str, Any]]:
    """The lines of a request, without what all of them have."""
    encoded = context.lines(None, None, lambda _environment, schema, key: f"{schema}/{key}")
    decoded = [json.loads(b"{" + line + b"}") for line in encoded]
    common = ("via", "operation")
    return [{name: line[name] for name in line if name not in common} for line in decoded]


def test_members_stand_in_the_order_of_the_table_and_empty_ones_are_left_out():
    line = encode_event(
        EventKind.REVEAL, fields=["email"], schema="p", by="", count=0, records=[], status=200
    )
    assert line == b'"event":"reveal","status":200,"schema":"p","count":0,"fields":["email"]'


def test_name_outside_the_table_is_refused():
    with pytest.raises(ValueError, match="value may not stand"):
        encode_event(EventKind.REVEAL, value="x")


def test_no_text_can_break_a_line_or_leave_its_string():
    line = encode_event(EventKind.ADMIN, subject='a"\n\x1f\u2028}')
    assert b"\n" not in line
    assert line.startswith(b'"event":"admin","subject":"a\\"\\n')
    assert "hash" in MEMBERS


def test_events_become_lines_reveals_last():
    context = audit_context()
    context.add(EventKind.REVEAL, "p", ["1", "2", "1", None], ["b", "a"])
    context.add(EventKind.DELETE, "q", ["9", None, None])
    context.subject = "somebody"
    assert lines(context) == [
        {"event": "delete", "schema": "q", "count": 3, "records": ["q/9"]},
        {
            "event": "reveal",
            "schema": "p",
            "count": 3,
            "records": ["p/1", "p/2"],
            "fields": ["a", "b"],
        },
    ]
    assert context.changed


def test_request_without_events_has_a_coarse_line():
    context = audit_context()
    context.subject = "k1"
    assert lines(context) == [{"event": "write", "subject": "k1"}]
    assert not context.changed
    path = {"schema": "p", "record_key": "7", "client_id": "c"}
    coarse = AuditContext("o", EventKind.REVEAL, path)
    assert lines(coarse) == [{"event": "reveal", "schema": "p", "records": ["p/7"], "subject": "c"}]


def test_administrator_has_a_line_of_its_own_beside_those_of_records():
    context = audit_context(EventKind.ADMIN)
    context.add(EventKind.DELETE, "p", ["1"])
    assert [line["event"] for line in lines(context)] == ["admin", "delete"]


def test_write_that_answers_with_the_same_records_is_one_line():
    context = audit_context()
    context.add(EventKind.WRITE, "p", ["1"], ["a"])
    context.add(EventKind.REVEAL, "p", ["1"], ["a", "b"])
    assert lines(context) == [
        {
            "event": "write",
            "schema": "p",
            "count": 1,
            "records": ["p/1"],
            "fields": ["a"],
            "revealed": ["a", "b"],
        }
    ]
    context.add(EventKind.REVEAL, "p", ["2"], ["c"])
    assert [line["event"] for line in lines(context)] == ["write", "reveal"]


def test_figures_count_their_groups_and_files_are_named():
    context = audit_context()
    context.add(EventKind.REVEAL, "p", [None] * 3, ["age"])
    context.add(EventKind.WRITE, "q", ["1"]).files.append("f1")
    context.add(EventKind.REVEAL, "r", ["2"]).files.append("f2")
    assert lines(context) == [
        {"event": "write", "schema": "q", "count": 1, "records": ["q/1"], "files": ["f1"]},
        {"event": "reveal", "schema": "p", "count": 3, "fields": ["age"]},
        {"event": "reveal", "schema": "r", "count": 1, "records": ["r/2"], "files": ["f2"]},
    ]


def test_very_many_records_have_several_lines():
    context = audit_context()
    context.add(EventKind.REVEAL, "p", map(str, range(2 * MOST_RECORDS + 1)), ["a"])
    found = lines(context)
    assert [len(line["records"]) for line in found] == [MOST_RECORDS, MOST_RECORDS, 1]
    assert [line.get("count") for line in found] == [2 * MOST_RECORDS + 1, None, None]


def test_tampered_rows_are_alarms_by_schema():
    context = audit_context()
    context.add_tampered("p", 2)
    context.add_tampered("p", 1)
    assert [(line["event"], line.get("count")) for line in lines(context)] == [
        ("write", None),
        ("alarm", 3),
    ]


@table("keys", [[], ["a"], ["a", "ö", "c"]])
@table("by", ["client", 'a "quoted" \u00e9'])
def test_the_line_of_a_plain_reveal_is_that_of_its_context(keys: list[str], by: str):
    context = AuditContext("find_records", EventKind.REVEAL, {"schema": "person"})
    context.by, context.environment = by, "default"
    context.add(EventKind.REVEAL, "person", keys, ("note", "id") if keys else ())
    parts = reveal_parts(by, "default", "find_records", "person", ("note", "id"))
    line = reveal_line(parts, [f"{key}-id" for key in keys])
    assert [line] == context.lines(200, None, lambda _space, _schema, key: f"{key}-id")
