from typing import Any

import pytest

from proxy.auth.authorization_server import AuthOptions, open_service
from proxy.auth.clients import Grant
from proxy.auth.policies import FREE, Policies, open_policies
from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.policy import AccessPolicy, Act
from proxy.model.policy_reader import read_policy
from proxy.model.rights import Principal
from tests.support.auth import office
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.unit.model.test_policy import SCHEMA
from tests.unit.model.test_policy_reader import EXAMPLE

KEYSET = Keyset.create("default")


def policy(name: str = "p", **more: Any) -> AccessPolicy:
    return read_policy(name, {"schema": "contact", "actions": ["read"], **more})


async def opened(store: MemoryStore) -> Policies:
    return await open_policies(store, KEYSET)


async def refused(work: Any) -> Code:
    with pytest.raises(VaultError) as error:
        await work
    return error.value.code


async def test_policies_are_there_again_after_a_restart_and_lie_sealed():
    store = MemoryStore()
    first = await opened(store)
    rows = {"filter": {"age": {"$gt": 5}, "region": "north"}}
    assert await first.put(read_policy("support", EXAMPLE))
    assert await first.put(policy("b", rows=rows))
    assert not await first.put(policy("b", rows=rows))
    again = await opened(store)
    assert (
        again.listed()
        == first.listed()
        == [policy("b", rows=rows), read_policy("support", EXAMPLE)]
    )
    assert (len(again), again.find("b"), again.find("none")) == (2, policy("b", rows=rows), None)
    assert again.origins == {"https://app.example.com"}
    note = await store.note("policies:default")
    assert note is not None
    assert b"contact" not in note


async def test_what_changes_counts_at_once():
    policies = await opened(MemoryStore())
    await policies.put(policy())
    before = policies.rights(("p",), SCHEMA), policies.properties(("p",))
    assert policies.rights(("p",), SCHEMA) is before[0]
    assert policies.properties(("p",)) is before[1]
    await policies.put(policy(actions=["write"], cors={"origins": ["https://a"]}))
    assert policies.rights(("p",), SCHEMA).actions == {Act.WRITE}
    assert policies.properties(("p",)).origins == policies.origins == {"https://a"}
    assert policies.properties(("p",)).mark != before[1].mark
    await policies.remove("p")
    # a policy that is gone gives nothing, not everything
    assert policies.rights(("p",), SCHEMA).actions == frozenset()
    assert policies.origins == frozenset()


async def test_rights_that_stand_with_a_caller_are_those_in_force():
    policies, other = await opened(MemoryStore()), type(SCHEMA)("contact", SCHEMA.fields[:2])
    await policies.put(policy())
    async with office() as here:
        made = await here.service.clients.create("shop", "default", Grant(policies=("p",)))
        caller = here.service.tokens.principal(await here.token(made))
        plain = Principal("shop", "default", policies=("p",))
        for change in ("one", "two"):
            for schema in (SCHEMA, SCHEMA, other, SCHEMA):
                found = policies.rights_of(caller, schema)
                assert found is policies.rights(("p",), schema) is policies.rights_of(plain, schema)
            await policies.put(policy(fields={"age": "hidden"}, rows={"filter": {"email": change}}))
        await policies.remove("p")
        assert policies.rights_of(caller, SCHEMA).actions == frozenset()
        # those of another environment are others
        elsewhere = await opened(MemoryStore())
        await elsewhere.put(policy(actions=["delete"]))
        assert policies.rights_of(caller, SCHEMA).actions == frozenset()
        assert elsewhere.rights_of(caller, SCHEMA).actions == {Act.DELETE}


async def test_the_schema_in_force_is_what_counts():
    policies = await opened(MemoryStore())
    await policies.put(policy(fields={"age": "hidden"}))
    assert policies.rights(("p",), SCHEMA).view is not SCHEMA
    other = type(SCHEMA)("contact", SCHEMA.fields[:2])
    view = policies.rights(("p",), other).view
    assert view is not None
    assert [field.name for field in view.fields] == ["id", "email"]
    assert policies.full_rights(other) is policies.full_rights(other)
    assert policies.full_rights(SCHEMA).view is SCHEMA


async def test_the_mark_tells_names_and_contents_apart():
    policies = await opened(MemoryStore())
    await policies.declare([policy("a"), policy("b")])
    marks = [
        policies.properties(names).mark for names in ((), ("a",), ("b",), ("a", "b"), ("a", "none"))
    ]
    assert len(set(marks)) == 5
    assert policies.properties(()) is FREE


async def test_what_files_declare_is_changed_there_alone():
    policies = await opened(MemoryStore())
    await policies.put(policy("api"))
    assert await policies.declare([policy("one"), policy("two")]) == ["one", "two"]
    assert await policies.declare([policy("one", actions=["write"])]) == ["one"]
    assert await policies.declare([policy("one", actions=["write"])]) == []
    assert await refused(policies.put(policy("one"))) is Code.CONFLICT
    assert await refused(policies.remove("one")) is Code.CONFLICT
    await policies.remove("two")  # its file is gone
    await policies.put(policy("api", actions=["delete"]))
    assert await refused(policies.remove("two")) is Code.NOT_FOUND
    assert [item.name for item in policies.listed()] == ["api", "one"]


async def test_two_processes_do_not_undo_each_others_changes():
    store = MemoryStore()
    one, other = await opened(store), await opened(store)
    await one.put(policy("a"))
    await other.put(policy("b"))
    assert [item.name for item in other.listed()] == ["a", "b"]
    await one.put(policy("c"))
    assert [item.name for item in one.listed()] == ["a", "b", "c"]


async def test_a_store_that_always_changes_is_told(monkeypatch):
    policies = await opened(MemoryStore())

    async def conflict(_content: bytes) -> None:
        raise VaultError(Code.CONFLICT, "")

    monkeypatch.setattr(policies._note, "write", conflict)
    assert await refused(policies.put(policy())) is Code.CONFLICT

    async def down(_content: bytes) -> None:
        raise VaultError(Code.VAULT_DOWN, "")

    monkeypatch.setattr(policies._note, "write", down)
    assert await refused(policies.put(policy())) is Code.VAULT_DOWN
    assert len(policies) == 0


async def test_what_is_remembered_is_bounded():
    note = SealedNote(MemoryStore(), KEYSET.aead(), "default", "policies")
    policies = Policies(note, KEYSET.hasher, most_cached=10)
    for number in range(100):
        policies.rights((f"p{number}",), SCHEMA)
        policies.properties((f"p{number}",))
    assert len(policies._rights) <= 10
    assert len(policies._properties) <= 10


async def test_it_is_known_whether_any_policy_lets_callers_from_outside_in():
    policies, known = await opened(MemoryStore()), []
    for name, mode in (("kept", "block"), ("let", "mask")):
        await policies.put(policy(name, firewall={"mode": mode}))
        known.append(policies.masks)
    await policies.remove("let")
    assert [*known, policies.masks] == [False, True, False]


async def test_clients_and_keys_are_there_after_a_restart():
    async with office() as here:
        made = await here.client()
        async with office(here.store, here.keyset) as again:
            assert again.service.clients.find(made.client.id) == made.client
            assert again.service.jwks() == here.service.jwks()
            assert await again.token(made)


async def test_another_keyset_opens_nothing():
    async with office() as here:
        await here.client()
        with pytest.raises(VaultError) as caught:
            await open_service(
                here.store,
                {"default": Keyset.create("default")},
                ManualClock(),
                lambda _: None,
                AuthOptions(),
            )
        assert caught.value.code is Code.CANNOT_OPEN


async def test_opening_a_new_store_makes_a_signing_key_and_no_client():
    service = await open_service(
        MemoryStore(),
        {"default": Keyset.create("default")},
        ManualClock(),
        lambda _: None,
        AuthOptions(60),
    )
    assert len(service.clients) == 0
    assert len(service.jwks()["keys"]) == 1
    assert service.tokens.lifetime == 60
    service.close()
