"""Which records have a value of somebody."""

import pytest
from msgspec.structs import replace

from proxy.api.wire import found_json, record_meta
from proxy.errors import Code, VaultError
from proxy.model.query import Equals, Query
from proxy.model.record import RecordLimits
from proxy.model.rights import FULL
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import doubt, promote, stage_creates, stage_updates
from proxy.vault.records.export_pages import export
from proxy.vault.records.find import PageAsker, find_page, record_of_key
from proxy.vault.records.history import record_versions
from proxy.vault.records.opening import open_records
from proxy.vault.records.person import PersonValues, find_person_records
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import all_visible
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, person

ANNIKA = PersonValues(["annika@example.com"])
ANN = {
    "name": "Ann Lind",
    "email": "Ann@Example.com",
    "phone": "+46 70 123 45 67",
    "born": "1987-04-12",
}


async def bench() -> Bench:
    made = await make_bench()
    people = [
        draft(**ANN, tags=["a", "ann@example.com"]),
        draft(name="ann@example.com", phone="070-123 45 67"),
        draft(name="Annika Lind", email="annika@example.com", tags=["4612"]),
    ]
    for key, one in enumerate(people):
        made.clock.advance(1)
        (held,) = await stage_creates(made.people, [one], [None])
        if key != 1:
            await bind(made.people, [(held, str(key))])
    return made


@table(
    ("value", "found"),
    [
        ("ann@EXAMPLE.com", {"0": ("email", "tags")}),
        ("0701234567", {"0": ("phone",)}),
        ("12.4.1987", {"0": ("born",)}),
        ("Ann Lind", {"0": ("name",)}),
        (" ann  LIND", {"0": ("name",)}),
        ("46-12", {}),
        ("46-70 123-45.67", {"0": ("phone",)}),
        ("+46-70-1234567", {"0": ("phone",)}),
        ("4612", {"2": ("tags",)}),
        ("Ann", {}),
        ("Lind", {}),
        ("@", {}),
        ("%", {}),
    ],
)
async def test_a_value_is_found_in_every_field_that_has_it(
    value: str, found: dict[str, tuple[str, ...]]
) -> None:
    made = await bench()
    walk = await find_person_records(Records(made.people), PersonValues([value]), 0, 100)
    # what waits for the answer to its create is nobody's record yet
    assert {one.record.key: one.fields for one in walk.holders} == found
    assert (walk.looked, walk.unreadable, walk.last) == (2, 0, None)


async def test_several_values_are_those_of_one_person_and_others_of_theirs_are_named() -> None:
    made = await bench()
    walk = await find_person_records(
        Records(made.people), PersonValues(["Ann Lind", "4612"]), 0, 100
    )
    told = {one.record.key: (one.fields, one.others) for one in walk.holders}
    assert told == {"0": (("name",), ("email", "phone")), "2": (("tags",), ("email",))}


@table(
    ("value", "told"),
    [("annika lind", ()), ("ann lind", ("note",)), ("nn lind", ()), ("Lind", ()), ("ann@example.com", ("note",))],
)  # fmt: skip
async def test_a_value_within_a_text_is_a_mention_where_that_is_asked(value, told) -> None:
    made = await make_bench()
    text = draft(name="Call Ann\nLind back, ANN@example.com", email="bo@example.com")
    (held,) = await stage_creates(made.people, [text], [None])
    await bind(made.people, [(held, "1")])
    for asked in (True, False):
        walk = await find_person_records(Records(made.people), PersonValues([value], asked), 0, 100)
        mentions = [(one.fields, one.mentions) for one in walk.holders]
        assert mentions == ([((), ("name",))] if told and asked else [])


@table("value", ["Ann Lind", "Bob Refused", "Cid Refused"])
async def test_a_record_is_found_by_each_version_that_the_application_may_have(value: str) -> None:
    made = await bench()
    (refused,) = await stage_updates(made.people, [("0", draft(name="Bob Refused"))])
    refused.both = True
    await promote(made.people, refused, {})
    lost = await stage_updates(made.people, [("0", draft(name="Cid Refused"))])
    await doubt(made.people, lost, answered=False)
    (one,) = (
        await find_person_records(Records(made.people), PersonValues([value]), 0, 100)
    ).holders
    assert (one.record.key, one.fields, one.others) == ("0", ("name",), ("email", "phone"))
    names = [version.fields["name"] for version in (one.record, *one.in_doubt)]
    assert names == ["Bob Refused", "Ann Lind", "Cid Refused"]


async def test_a_person_is_found_by_earlier_values_that_a_rule_keeps() -> None:
    made = await make_bench(recipe=person()._replace(keeps=True))
    (held,) = await stage_creates(made.people, [draft(name="Ann Lind", email="a@b.se")], [None])
    await bind(made.people, [(held, "0")])
    for name in ("Ann Ek", "Ann Alm"):
        (changed,) = await stage_updates(made.people, [("0", draft(name=name))])
        await promote(made.people, changed, {})
    walk = await find_person_records(Records(made.people), PersonValues(["Ann Lind"]), 0, 100)
    (one,) = walk.holders
    assert (one.fields, one.record.fields["name"]) == (("name",), "Ann Alm")
    assert [version.fields for version in one.in_doubt] == [{"name": ["Ann Lind", "Ann Ek"]}]


async def test_the_interface_tells_of_a_record_that_it_is_in_doubt() -> None:
    made = await bench()
    (refused,) = await stage_updates(made.people, [("0", draft(name="Bob Refused"))])
    refused.both = True
    await promote(made.people, refused, {})
    records = Records(made.people)
    rows = list((await records.by_key(("0", "2"))).values())
    for opened in (await open_records(records, rows), [records.open(row) for row in rows]):
        metas = {one.key: record_meta(one) for one in opened}
        assert metas == {"0": {"in_doubt": True}, "2": {}}
        (body,) = [found_json(FULL.render(one), "person", None) for one in opened if one.key == "0"]
        assert body["meta"] == {"in_doubt": True}


async def test_a_record_in_doubt_is_there_only_for_whom_each_of_its_versions_would_be() -> None:
    made = await bench()
    (changed,) = await stage_updates(made.people, [("0", draft(name="Bob", email="b@x.org"))])
    changed.both = True
    await promote(made.people, changed, {})
    records = Records(made.people)
    records.rights = replace(FULL, rows=(Equals("email", ("b@x.org",)),))
    assert (await find_person_records(records, PersonValues(["Ann Lind"]), 0, 100)).holders == []
    assert (await find_person_records(records, PersonValues(["Bob"]), 0, 100)).holders == []
    records.rights = replace(FULL, rows=(Equals("email", ("b@x.org", "ann@example.com")),))
    (one,) = (await find_person_records(records, PersonValues(["Bob"]), 0, 100)).holders
    assert [version.fields["name"] for version in one.in_doubt] == ["Ann Lind"]


async def test_an_update_in_doubt_makes_nothing_visible_to_a_policy_of_rows() -> None:
    made = await bench()
    (changed,) = await stage_updates(made.people, [("0", draft(name="Bob", email="b@x.org"))])
    changed.both = True
    await promote(made.people, changed, {})
    records = Records(made.people)
    own, all_ = RecordLimits(), Query(())
    for email, there in (
        ("b@x.org", False),
        ("ann@example.com", False),
        ("annika@example.com", True),
    ):
        records.rights = replace(FULL, rows=(Equals("email", (email,)),))
        for query in (all_, Query((Equals("email", (email,)),))):
            found = await find_page(records, query)
            assert ([one.key for one in found.records], found.total) == (["2"] * there, there)
        exported = await export(records, None, 10, PageAsker(lambda one: one))
        assert len(exported.records) == there
        assert await all_visible(records, ["0"]) is False
        with pytest.raises(VaultError) as refused:
            await record_versions(records, "0", 10, 0)
        assert refused.value.code is Code.NOT_FOUND
        assert await record_of_key(records, "0", own, lambda one: one) is None
    records.rights = replace(FULL, rows=(Equals("born", ("1987-04-12",)),))
    assert await all_visible(records, ["0"])  # both versions are
    assert (await find_page(records, all_)).total == 1


async def test_a_walk_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.vault.records.person._ROWS", 1)
    made = await bench()
    first = await find_person_records(Records(made.people), ANNIKA, 0, 1)
    assert (first.holders, first.looked) == ([], 1)
    assert first.last is not None
    rest = await find_person_records(Records(made.people), ANNIKA, first.last, 10)
    assert ([one.record.key for one in rest.holders], rest.last) == (["2"], None)
