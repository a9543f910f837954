from decimal import Decimal
from typing import Any

import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.filter_reader import read_aggregate
from proxy.model.record import DEFAULTS
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.changes import Remove, Replace
from proxy.vault.collection import TableSpec
from proxy.vault.records.aggregate import Aggregated, _average, aggregate_groups
from tests.support.contacts import CONTACT, Contacts, contact, make_contacts
from tests.support.table import table
from tests.unit.vault.records.test_find import collected

D = Decimal
ALL = {
    "n": {"func": "count"},
    "total": {"func": "sum", "key": "sum"},
    "least": {"func": "MIN", "key": "age"},
    "most": {"func": "max", "key": "sum"},
    "mean": {"func": "avg", "key": "age"},
}


async def figures(contacts: Contacts, client: str = "me", **asked: Any) -> Aggregated:
    asked = asked if "next" in asked else {"metrics": ALL, **asked}
    return await aggregate_groups(
        contacts.records, read_aggregate(CONTACT, asked, DEFAULTS), client
    )


def by(*keys: str, **more: Any) -> dict[str, Any]:
    return {"keys": list(keys), **more}


async def people() -> Contacts:
    contacts = await make_contacts()
    await contacts.add(
        contact("a", name="Ann", city="Umeå", age=1, sum=D("0.1")),
        contact("b", name=" Ann ", city="Umeå ", age=2, sum=D("0.2")),
        contact("c", name="Bo", city="Lund", age=4),
        contact("d", name="ann", city="Lund", sum=D("-5")),
        contact("e"),
    )
    return contacts


async def test_without_keys_all_records_are_one_group() -> None:
    contacts = await people()
    (group,) = (await figures(contacts)).groups
    assert group.keys == {}
    assert group.metrics == {
        "n": 5,
        "total": D("-4.7"),
        "least": 1,
        "most": D("0.2"),
        "mean": D("2.3333333333"),
    }


async def test_nothing_has_a_sum_and_a_count_but_no_average() -> None:
    contacts = await people()
    (group,) = (await figures(contacts, filter={"city": "nowhere"})).groups
    assert group.metrics == {"n": 0, "total": 0, "least": None, "most": None, "mean": None}
    assert (await figures(contacts, filter={"city": "nowhere"}, group_by=by("city"))).groups == []


async def test_groups_by_what_is_in_the_clear_are_shown_in_their_normal_form() -> None:
    found = await figures(await people(), group_by=by("city"))
    assert [(group.keys, group.metrics["n"]) for group in found.groups] == [
        ({"city": None}, 1),
        ({"city": "Lund"}, 2),
        ({"city": "Umeå"}, 2),
    ]
    assert found.next is None


async def test_groups_by_a_hash_are_shown_with_the_value_of_their_oldest_record() -> None:
    found = await figures(await people(), group_by=by("name"))
    assert {group.keys["name"]: group.metrics["n"] for group in found.groups} == {
        None: 1,
        "Ann": 2,
        "Bo": 1,
        "ann": 1,
    }


@table("name", ["record_key", "id"])
async def test_each_record_is_a_group_by_its_key(name):
    found = await figures(await people(), group_by=by(name, "sum"))
    assert {group.keys[name]: group.keys["sum"] for group in found.groups} == {
        "a": D("0.1"), "b": D("0.2"), "c": None, "d": D(-5), "e": None,
    }  # fmt: skip


@table("keys", [("name",), ("age",), ("sum",), ("city", "age"), ("record_key",), ("sum", "name")])
async def test_pages_together_are_all_groups(keys):
    contacts = await people()
    whole = await figures(contacts, group_by=by(*keys))
    found = await figures(contacts, group_by=by(*keys, limit=1))
    groups = list(found.groups)
    while found.next is not None:
        assert len(found.groups) == 1
        found = await figures(contacts, next=found.next)
        groups += found.groups
    assert groups == whole.groups
    assert len(groups) > 2


async def test_a_cursor_keeps_the_question_to_the_letter() -> None:
    contacts = await people()
    where = {
        "age": {"$gte": 1},
        "sum": [D("0.10"), 2, D("0.2")],
        "$or": [{"city": {"$like": "U"}}, {"name": {"$not": [None, "x"]}}],
        "extra": {"$.a": None},
    }
    first = await figures(contacts, filter={**where}, group_by=by("age", limit=1))
    assert first == Aggregated([], None)
    del where["extra"]
    first = await figures(contacts, filter=where, group_by=by("age", limit=1))
    assert first.next is not None
    second = await figures(contacts, next=first.next)
    assert [group.keys["age"] for group in first.groups + second.groups] == [1, 2]
    assert second.next is None


async def refused(contacts: Contacts, cursor: str, client: str = "me") -> None:
    with pytest.raises(VaultError) as caught:
        await figures(contacts, client, next=cursor)
    assert caught.value.code is Code.INVALID_INPUT
    assert [detail.source for detail in caught.value.details] == ["/next"]


async def test_a_cursor_is_for_its_client_its_schema_and_its_definition_alone() -> None:
    keyset = Keyset.create("test")
    contacts = await make_contacts(keyset=keyset)
    await contacts.add(contact("a", age=1), contact("b", age=2))
    cursor = (await figures(contacts, group_by=by("age", limit=1))).next
    assert cursor is not None
    await refused(contacts, cursor, "other")
    await refused(contacts, cursor[:-1] + ("A" if cursor[-1] != "A" else "B"))
    await refused(contacts, "x")
    await refused(await make_contacts(), cursor)
    again = TableSpec(Schema("contact", (*CONTACT.fields, Field("new"))), {}, None, addressed=False)
    await refused(await make_contacts(keyset=keyset, recipe=again), cursor)
    assert (await figures(contacts, next=cursor)).groups[0].keys == {"age": 2}


async def spoil(contacts: Contacts, key: str) -> None:
    row = await contacts.row(key)
    assert row is not None
    spoiled = Replace(row._replace(body=row.body[:-1] + bytes((row.body[-1] ^ 1,))), row.version)
    await contacts.store.commit(contacts.records.collection.table, [spoiled])


async def test_a_group_whose_oldest_record_does_not_open_is_shown_by_another() -> None:
    contacts = await people()
    await spoil(contacts, "a")
    found = await figures(contacts, filter={"age": {"$gt": 0}}, group_by=by("name", "city"))
    assert {group.keys["name"]: group.metrics["n"] for group in found.groups} == {
        " Ann ": 2,
        "Bo": 1,
    }
    await spoil(contacts, "b")
    with pytest.raises(VaultError) as caught:
        await figures(contacts, group_by=by("name"))
    assert caught.value.code is Code.CANNOT_OPEN


async def test_a_group_whose_records_go_away_meanwhile_is_left_out(monkeypatch) -> None:
    contacts = await people()
    row = await contacts.row("c")
    assert row is not None
    counted = contacts.store.aggregate

    async def then_removed(table: str, query: Any) -> Any:
        groups = await counted(table, query)
        await contacts.store.commit(table, [Remove(row.rid)])
        return groups

    monkeypatch.setattr(contacts.vault.both_roots, "aggregate", then_removed)
    found = await figures(contacts, group_by=by("name", "sum"))
    assert sorted(str(group.keys["name"]) for group in found.groups) == [
        " Ann ",
        "Ann",
        "None",
        "ann",
    ]


async def test_every_scalar_type_is_shown_as_it_was_sent() -> None:
    values: dict[FieldType, Any] = {
        FieldType.STRING: "x", FieldType.INTEGER: 5, FieldType.DECIMAL: D("1.5"), FieldType.BOOLEAN: True,
        FieldType.DATETIME: "2024-01-01T00:00:00.000Z", FieldType.DATE: "2024-01-01", FieldType.TIME: "12:00:00",
    }  # fmt: skip
    fields = [Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED)]
    for kind in values:
        fields += [
            Field(f"{kind}_{storage}", kind, storage)
            for storage in (Storage.INDEXED, Storage.INDEXED_HASHED)
        ]
    schema = Schema("all", tuple(fields))
    contacts = await make_contacts(recipe=TableSpec(schema, {}, None, addressed=False))
    sent = {field.name: values[field.type] for field in fields[1:]}
    await contacts.add(contact("a", **sent))
    for names in (list(sent)[:7], list(sent)[7:]):
        asked = read_aggregate(
            schema, {"metrics": {"n": {"func": "count"}}, "group_by": by(*names)}, DEFAULTS
        )
        (group,) = (await aggregate_groups(contacts.records, asked, "me")).groups
        assert group.keys == {name: sent[name] for name in names}
        assert [type(value) for value in group.keys.values()] == [
            type(sent[name]) for name in names
        ]


async def test_what_the_proxy_has_collected_is_grouped_too() -> None:
    records = await collected()
    asked = {"metrics": {"n": {"func": "count"}}, "group_by": by("born", "email", "record_key")}
    found = await aggregate_groups(records, read_aggregate(records.schema, asked, DEFAULTS), "me")
    assert [group.keys for group in found.groups] == [
        {"born": None, "email": None, "record_key": "2"},
        {"born": "1979-12-31", "email": "bo@example.org", "record_key": "1"},
        {"born": "1980-01-31", "email": "Ann@Example.org", "record_key": "0"},
    ]


async def test_a_sum_beyond_64_bits_is_exact() -> None:
    contacts = await make_contacts()
    await contacts.add(*[contact(str(n), age=2**63 - 1) for n in range(3)])
    asked = {"all": {"func": "sum", "key": "age"}, "mean": {"func": "avg", "key": "age"}}
    found = await aggregate_groups(
        contacts.records, read_aggregate(CONTACT, {"metrics": asked}, DEFAULTS), "me"
    )
    assert found.groups[0].metrics == {"all": D(3 * (2**63 - 1)), "mean": D(2**63 - 1)}
    assert isinstance(found.groups[0].metrics["all"], Decimal)


@table(
    ("total", "count", "expected"),
    [(1, 3, "0.3333333333"), (2, 3, "0.6666666667"), (-2, 3, "-0.6666666667"), (10, 4, "2.5"), (6, 3, "2"), (0, 7, "0"),
     (1, 2 * 10**10, "0"), (3, 2 * 10**10, "2E-10"), (-1, 2 * 10**10, "0"), (5 * 10**30, 1, "5" + "0" * 30)],
)  # fmt: skip
def test_an_average_is_rounded_half_to_even(total, count, expected):
    assert str(_average(total, count)) == expected
