import pytest

from proxy.errors import Code, VaultError
from proxy.model.policy import Act
from proxy.model.record import Attachment, Record
from proxy.model.rights import FULL, Redactor, Rights, denied
from proxy.model.schema import Field, Schema

FILE = Attachment("f", "cv.pdf", "00", "application/pdf", 1, 0, 0)
RECORD = Record(
    1, "k", {"id": "k", "name": "Ann", "secret": "x"}, 1, 0, 0, attachments=(FILE,),
    eras={"name": 2},
)  # fmt: skip
VIEW = Schema("contact", (Field("id"), Field("name")))


def veil(rid: int, era: int, value: str) -> str:
    return f"{rid}/{era}/{len(value)}"


SOME = Rights(
    frozenset((Act.READ,)),
    VIEW,
    frozenset(("id", "name")),
    {"name": Redactor(veil, lambda text: text.startswith("**"), masks=True)},
    files=False,
)


def test_without_policies_a_record_is_shown_as_it_is():
    assert FULL.render(RECORD) is RECORD
    assert FULL.redacted_fields == []
    assert FULL.shows_value("anything")
    FULL.need(*Act)


def test_only_what_is_in_the_view_is_shown_and_veiled_values_are_made_with_their_era():
    shown = SOME.render(RECORD)
    assert shown.fields == {"id": "k", "name": "1/2/3"}
    assert (shown.attachments, shown.eras) == ((), None)
    assert SOME.redacted_fields == ["name"]
    assert [SOME.shows_value(name) for name in ("id", "name", "secret")] == [True, False, False]
    assert RECORD.fields["name"] == "Ann"


def test_what_is_not_allowed_is_refused():
    assert SOME.allows(Act.READ)
    SOME.need(Act.READ)
    with pytest.raises(VaultError) as refused:
        SOME.need(Act.READ, Act.WRITE)
    assert refused.value.code is denied().code is Code.ACCESS_DENIED


def test_outside_needs_rights_that_know_the_schema():
    with pytest.raises(VaultError) as refused:
        FULL.outside()
    assert refused.value.code is Code.INTERNAL


def test_a_shown_text_is_told_from_a_value():
    stored = RECORD.fields["name"]
    assert SOME.render(RECORD).fields["name"] == "1/2/3"
    assert SOME.unchanged(RECORD, {"name": "1/2/3"}, readable=True) == {"name"}
    assert SOME.unchanged(RECORD, {"name": "1/2/3"}, readable=False) == set()
    assert SOME.unchanged(RECORD, {"name": stored, "id": "k"}, readable=True) == set()
    assert SOME.unchanged(RECORD, {"name": None}, readable=True) == set()
    assert (
        SOME.masked({"name": "**x"}),
        SOME.masked({"name": "x"}),
        SOME.masked({"id": "**x"}),
    ) == (["name"], [], [])


def test_a_redacted_text_of_any_version_of_the_record_is_recognised():
    redacted = Rights(
        SOME.actions, VIEW, SOME.names, {"name": Redactor(veil, lambda text: text.endswith("/0"))}
    )
    record = Record(7, "k", {"name": None}, 3, 0, 0)
    made = [f"7/{era}/0" for era in range(5)]
    assert [bool(redacted.unchanged(record, {"name": text}, readable=False)) for text in made] == [
        True
    ] * 4 + [False]
    assert redacted.masked({"name": "7/1/0"}) == []
