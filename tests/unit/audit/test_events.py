import pytest

from proxy.audit.events import MEMBERS, AuditEvent, body


def test_members_stand_in_the_order_of_the_table_and_what_is_empty_is_left_out():
    told = body(
        AuditEvent.REVEAL, fields=["email"], schema="p", by="", count=0, records=[], status=200
    )
    assert told == b'"event":"reveal","status":200,"schema":"p","count":0,"fields":["email"]'


def test_a_name_outside_the_table_is_refused():
    with pytest.raises(ValueError, match="value may not stand"):
        body(AuditEvent.REVEAL, value="x")


def test_no_text_can_break_a_line_or_leave_its_string():
    told = body(AuditEvent.ADMIN, subject='a"\n\x1f\u2028}')
    assert b"\n" not in told
    assert told.startswith(b'"event":"admin","subject":"a\\"\\n')
    assert "hash" in MEMBERS
