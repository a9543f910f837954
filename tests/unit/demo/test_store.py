import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.demo.contacts import STORE, contacts_app
from proxy.demo.store import PEOPLE, ContactFault, ContactStore, blank, luhn, plant, read_contact
from proxy.errors import Code, VaultError
from tests.support.patience import PATIENCE
from tests.support.serving import serving
from tests.support.table import table


def test_contacts_are_there_at_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "new" / "contacts.json"
    store = ContactStore(file)
    assert store.add({"first_name": "Ann"}) == {"id": 1, "first_name": "Ann"}
    store.add({"first_name": "Ben"})
    store.replace(2, {"first_name": "Bea"})
    assert list(ContactStore(file)) == [
        {"id": 1, "first_name": "Ann"},
        {"id": 2, "first_name": "Bea"},
    ]


def test_an_id_is_never_used_twice_even_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "contacts.json"
    store = ContactStore(file)
    store.add({})
    assert store.remove(1)
    assert ContactStore(file).add({})["id"] == 2


def test_what_is_handed_out_or_in_is_not_what_is_kept(tmp_path: Path) -> None:
    store = ContactStore(tmp_path / "contacts.json")
    given = {"tags": ["a"]}
    store.add(given)["tags"].append("b")
    given["tags"].append("c")
    known = store.get(1)
    assert known is not None
    known["tags"].append("d")
    next(iter(store))["tags"].append("e")
    assert store.get(1) == {"id": 1, "tags": ["a"]}


def test_unknown_ids_are_told_apart(tmp_path: Path) -> None:
    store = ContactStore(tmp_path / "contacts.json")
    assert store.get(9) is None
    assert not store.remove(9)
    with pytest.raises(KeyError):
        store.replace(9, {})
    assert len(store) == 0


def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "contacts.json"
    store = ContactStore(file)
    store.add({"first_name": "Ann"})
    with pytest.raises(TypeError):
        # cannot be written as JSON: stops in the middle of the file
        store.add({"first_name": object()})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.add({"first_name": "Ben"})
    monkeypatch.undo()
    assert list(store) == list(ContactStore(file)) == [{"id": 1, "first_name": "Ann"}]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"next_id": 1}', '{"next_id": "x", "contacts": []}', "\udcff"]
)
def test_a_file_of_another_kind_is_named_and_left_alone(tmp_path: Path, content: str) -> None:
    file = tmp_path / "contacts.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    before = file.read_bytes()
    with pytest.raises(VaultError) as fault:
        ContactStore(file)
    assert fault.value.code is Code.BAD_STORE
    assert "Move it away" in fault.value.message
    assert file.read_bytes() == before


def test_a_folder_that_takes_no_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(VaultError) as fault:
        ContactStore(tmp_path / "taken" / "contacts.json")
    assert fault.value.code is Code.NOT_WRITABLE
    assert "Choose a folder" in fault.value.message


async def test_who_waits_for_a_change_hears_of_it(tmp_path: Path) -> None:
    store = ContactStore(tmp_path / "contacts.json")
    assert not await store.changed(0, within=0.01)
    waiters = [asyncio.create_task(store.changed(0, within=PATIENCE)) for _ in range(2)]
    await asyncio.sleep(0)
    store.add({})
    assert await asyncio.gather(*waiters) == [True, True]
    assert not await store.changed(store.changes, within=0.01)


async def test_a_change_that_came_before_one_waits_is_not_missed(tmp_path: Path) -> None:
    store = ContactStore(tmp_path / "contacts.json")
    seen = store.changes
    store.add({})
    assert await store.changed(seen, within=0)


def test_the_file_is_plain_json_that_a_person_can_read(tmp_path: Path) -> None:
    file = tmp_path / "contacts.json"
    ContactStore(file).add({"first_name": "Åsa"})
    assert "Åsa" in file.read_text("utf-8")
    assert json.loads(file.read_text("utf-8"))["next_id"] == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["contacts.json"]


def test_the_invented_people_pass_the_checks_and_fill_every_field() -> None:
    for person in PEOPLE:
        assert read_contact(person, blank()) == (person, [])
    assert set(PEOPLE[0]) == set(blank())


async def test_they_are_planted_once_and_only_where_nobody_is(tmp_path: Path) -> None:
    app = contacts_app(tmp_path / "contacts.json")
    async with serving(app) as address:
        assert await plant(address) == len(PEOPLE)
        assert await plant(address) == 0
    assert [contact["email"] for contact in app[STORE]] == [person["email"] for person in PEOPLE]


async def test_a_refusal_is_not_swallowed() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"total": 0}, status=200 if request.method == "GET" else 503)

    app = web.Application()
    app.router.add_route("*", "/api/contacts", refuse)
    async with serving(app) as address:
        with pytest.raises(VaultError) as fault:
            await plant(address)
    assert fault.value.code is Code.BAD_RULES
    assert "answered 503" in fault.value.message


# ---- validation


NAMED = {"first_name": "Ann", "last_name": "Lindqvist"}


@table(
    "field, value",
    [
        ("email", "a@b"), ("email", "a b@c.de"), ("email", "areplicasc.de"), ("email", "@c.de"),
        ("email", 5), ("phone", "call me"), ("phone", "12"),
        ("phone", "+46\u0661\u0662\u0663\u0664"), ("birth_date", "1990-02-30"),
        ("birth_date", "19900228"), ("birth_date", "28.02.1990"),
        ("birth_date", "1990-02-28T00:00"), ("card", "4242424242424241"), ("card", "42424242"),
        ("card", "4242-"), ("first_name", ""), ("first_name", "   "), ("last_name", None),
        ("last_name", 7), ("note", "x" * 201), ("tags", "press"), ("tags", [1]), ("vip", "yes"),
        ("address", "Sveavägen 21"), ("address", {"street": 21}), ("address", {"city": ["Lund"]}),
    ],
)  # fmt: skip
def test_unfit_values_are_found_and_named_by_field(field: str, value: Any) -> None:
    _, faults = read_contact({**NAMED, field: value}, blank())
    assert [fault.field for fault in faults] == [field]
    assert faults[0].message


@table(
    ("field", "value"),
    [
        ("email", "Ann.Lindqvist+x@mail.example.com"),
        ("email", "åsa@exämple.se"),
        ("email", ""),
        ("email", None),
        ("phone", "+46 70 174 06 05"),
        ("phone", "(020) 915-0142"),
        ("birth_date", "2000-02-29"),
        ("card", "4242 4242 4242 4242"),
        ("card", "5555-5555-5555-4444"),
        ("card", "378282246310005"),
        ("note", "x" * 200),
        ("tags", []),
        ("tags", ["press", ""]),
        ("vip", True),
    ],
)
def test_fit_values_are_taken_as_they_are(field: str, value: Any) -> None:
    contact, faults = read_contact({**NAMED, field: value}, blank())
    assert faults == []
    assert contact[field] == value


def test_what_is_not_submitted_comes_from_the_base() -> None:
    base = {
        **blank(),
        **NAMED,
        "tags": ["press"],
        "address": {"street": "Storgatan 1", "city": "Lund"},
    }
    contact, faults = read_contact(
        {"last_name": "Berg", "address": {"city": "Malmö"}, "shoe_size": 41}, base
    )
    assert faults == []
    assert contact == {
        **base,
        "last_name": "Berg",
        "address": {"street": "Storgatan 1", "city": "Malmö"},
    }


def test_every_fault_is_told_at_once() -> None:
    _, faults = read_contact({"email": "x", "card": "1"}, blank())
    assert [fault.field for fault in faults] == ["first_name", "last_name", "email", "card"]
    assert ContactFault("first_name", "is required") in faults


def test_luhn_knows_every_wrong_digit() -> None:
    assert luhn("79927398713")
    assert not any(luhn(f"7992739871{digit}") for digit in "012456789")
    assert not luhn("97927398713")
