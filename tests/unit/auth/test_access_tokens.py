from typing import Any

import jwt
import msgspec
import pytest

from proxy.auth import access_tokens as module
from proxy.auth.access_tokens import (
    LONGEST_LIFETIME,
    SIGNING_KEY_LIFETIME,
    AccessClaims,
    SigningKeys,
    TokenIssuer,
)
from proxy.auth.clients import Client, Emergency, Grant
from proxy.crypto.jws import signed_by
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.rights import Principal, Role
from tests.support.auth import HERE, office
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.support.table import table


def holds(tokens: TokenIssuer, token: str) -> bool:
    return tokens.principal(token).environment == "default"


def seen(tokens: TokenIssuer, token: str) -> Principal:
    """The principal of a token, without what is kept beside it."""
    found = tokens.principal(token)
    return Principal(found.client, found.environment, found.admin, found.policies, found.roles)


def refused(tokens: TokenIssuer, token: str) -> bool:
    with pytest.raises(VaultError) as caught:
        tokens.principal(token)
    assert caught.value.code is Code.UNAUTHORIZED
    assert tokens.claims(token) is None
    return True


async def test_a_token_stands_for_its_client_and_has_the_claims_of_rfc_9068():
    async with office() as here:
        made = await here.client(admin=True)
        token = here.service.tokens.issue(made.client, (HERE,))
        assert seen(here.service.tokens, token) == Principal(made.client.id, "default", admin=True)
        claims = jwt.decode(token, options={"verify_signature": False})
        assert claims.pop("jti")
        now = here.clock() // 1000
        assert claims == {
            "iss": HERE, "sub": made.client.id, "client_id": made.client.id, "aud": [HERE], "scope": "default",
            "iat": now, "exp": now + 300, "ver": 1,
        }  # fmt: skip


async def test_a_token_tells_nothing_of_policies_but_its_principal_knows_them():
    async with office() as here:
        made = await here.service.clients.create("shop", "default", Grant(policies=("support",)))
        token = await here.token(made)
        assert here.service.tokens.principal(token).policies == ("support",)
        assert "support" not in str(jwt.decode(token, options={"verify_signature": False}))


async def test_a_token_ends_after_its_lifetime_also_where_it_is_remembered():
    async with office() as here:
        token = await here.token(await here.client())
        here.clock.advance(300_000 - here.clock() % 1000 - 1)
        assert holds(here.service.tokens, token)
        here.clock.advance(1)
        assert refused(here.service.tokens, token)
        assert refused(here.service.tokens, token)


@table("verb", ["disable", "remove", "renew"])
async def test_the_end_of_a_client_or_of_its_secret_ends_its_tokens_at_once(verb):
    async with office() as here:
        made, other = await here.client(), await here.client()
        token, kept, unseen = (
            await here.token(made),
            await here.token(other),
            await here.token(made),
        )
        assert holds(here.service.tokens, token)
        await getattr(here.service.clients, verb)(made.client.id)
        assert refused(here.service.tokens, token)
        assert refused(here.service.tokens, unseen)
        assert holds(here.service.tokens, kept)


async def test_a_token_is_for_its_addresses_alone():
    async with office() as here:
        made = await here.client()
        assert refused(
            here.service.tokens, here.service.tokens.issue(made.client, ("https://other.example",))
        )


async def test_a_token_of_another_instance_is_refused():
    async with office() as here, office() as elsewhere:
        made = await here.client()
        assert refused(here.service.tokens, elsewhere.service.tokens.issue(made.client, (HERE,)))


async def test_a_token_holds_after_a_restart():
    async with office() as here:
        token = await here.token(await here.client())
        async with office(here.store, here.keyset, here.clock) as again:
            assert holds(again.service.tokens, token)


async def test_rotation_of_the_signing_key_ends_no_token():
    async with office() as here:
        made = await here.client()
        tokens = [await here.token(made)]
        for _ in range(3):
            await here.service.keys.rotate()
            tokens.append(await here.token(made))
        assert all(holds(here.service.tokens, token) for token in tokens)


async def test_a_token_seen_before_is_not_verified_again(monkeypatch):
    async with office() as here:
        token = await here.token(await here.client())
        assert holds(here.service.tokens, token)
        monkeypatch.setattr("proxy.auth.access_tokens.signed_by", None)
        assert holds(here.service.tokens, token)


async def test_a_change_of_another_client_leaves_a_token_read_and_one_of_its_own_does_not(
    monkeypatch,
):
    async with office() as here:
        tokens, made = here.service.tokens, await here.client()
        token = tokens.issue(made.client, (HERE,))
        before = tokens.principal(token)
        monkeypatch.setattr("proxy.auth.access_tokens.signed_by", None)
        await here.client()
        assert tokens.principal(token) is before
        monkeypatch.undo()
        for change in (here.service.clients.renew, here.service.clients.disable):
            token = tokens.issue(here.service.clients.find(made.client.id) or made.client, (HERE,))
            assert holds(tokens, token)
            await change(made.client.id)
            assert refused(tokens, token)


async def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_CACHED_TOKENS", 3)
    async with office() as here:
        made = await here.client()
        issued = [here.service.tokens.issue(made.client, (HERE,)) for _ in range(10)]
        assert all(holds(here.service.tokens, token) for token in issued * 2)
        assert len(here.service.tokens) == 3


async def test_a_text_that_is_no_token_is_not_remembered():
    async with office() as here:
        assert refused(here.service.tokens, "no token")
        assert len(here.service.tokens) == 0


def claimed(client: Client, clock: ManualClock, **changes: Any) -> bytes:
    now = clock() // 1000
    claims = AccessClaims(HERE, client.id, client.id, [HERE], "default", now, now + 300, "j", 1)
    return msgspec.json.encode({**msgspec.to_builtins(claims), **changes})


@table(
    "changes",
    [{"client_id": "nobody"}, {"ver": 2}, {"ver": "1"}, {"scope": "other"}, {"aud": []}, {"aud": HERE}, {"exp": "soon"},
     {"exp": 0}, {"exp": None}, {"exp": 1.5}, {"client_id": None}],
)  # fmt: skip
async def test_claims_that_do_not_hold_are_refused_though_the_signature_does(changes):
    async with office() as here:
        made = await here.client()
        sign = here.service.keys.current.sign
        assert holds(here.service.tokens, sign(claimed(made.client, here.clock), "at+jwt"))
        assert refused(
            here.service.tokens, sign(claimed(made.client, here.clock, **changes), "at+jwt")
        )


@table("payload", [b"", b"{}", b"[]", b"null", b"\xff", b'{"exp":1}'])
async def test_a_signed_payload_without_our_claims_is_refused(payload):
    async with office() as here:
        assert refused(here.service.tokens, here.service.keys.current.sign(payload, "at+jwt"))


KEYSET = Keyset.create("default")


async def opened(store: MemoryStore, clock: ManualClock) -> SigningKeys:
    keys = SigningKeys(store, KEYSET.aead(), "default", clock)
    await keys.load()
    return keys


async def test_the_key_is_the_same_after_a_restart_and_lies_sealed():
    store, clock = MemoryStore(), ManualClock()
    keys = await opened(store, clock)
    again = await opened(store, clock)
    assert again.current.kid == keys.current.kid
    assert keys.current.seed() not in b"".join(store._notes.values())


async def test_a_key_of_age_is_replaced_and_goes_on_verifying():
    clock = ManualClock()
    keys = await opened(MemoryStore(), clock)
    before, token = keys.current.kid, keys.current.sign(b"{}", "k")
    clock.advance(SIGNING_KEY_LIFETIME - 1)
    await keys.maintain()
    assert keys.current.kid == before
    clock.advance(1)
    await keys.maintain()
    assert keys.current.kid != before
    assert signed_by(token, keys.by_kid, "k") == b"{}"
    assert [key["kid"] for key in keys.public()] == [keys.current.kid, before]


async def test_a_retired_key_is_forgotten_when_its_last_token_has_ended():
    store, clock = MemoryStore(), ManualClock()
    keys = await opened(store, clock)
    before = keys.current.kid
    await keys.rotate()
    clock.advance(LONGEST_LIFETIME * 1000)
    await keys.maintain()
    assert before in keys.by_kid
    clock.advance(1)
    await keys.maintain()
    assert list(keys.by_kid) == [keys.current.kid]
    assert list((await opened(store, clock)).by_kid) == [keys.current.kid]


async def test_an_old_key_is_replaced_at_the_start():
    store, clock = MemoryStore(), ManualClock()
    before = (await opened(store, clock)).current.kid
    clock.advance(10 * SIGNING_KEY_LIFETIME)
    keys = await opened(store, clock)
    assert keys.current.kid != before
    assert before in keys.by_kid  # a token signed a moment before the stop


async def test_a_store_that_cannot_be_written_leaves_the_key_in_use(monkeypatch):
    store, clock = MemoryStore(), ManualClock()
    keys = await opened(store, clock)
    before = keys.current.kid

    async def full(*_: object) -> None:
        raise VaultError(Code.VAULT_DOWN, "the disk is full")

    monkeypatch.setattr(store, "put_notes", full)
    with pytest.raises(VaultError):
        await keys.rotate()
    assert keys.current.kid == before
    monkeypatch.undo()
    await keys.rotate()
    assert list(keys.by_kid) == [before, keys.current.kid]


async def test_two_processes_agree_on_the_key_that_was_made_first():
    store, clock = MemoryStore(), ManualClock()
    one, other = await opened(store, clock), await opened(store, clock)
    await one.rotate()
    await other.rotate()
    assert other.current.kid == one.current.kid


async def test_a_role_of_an_emergency_counts_until_its_end_also_for_tokens_that_are_out():
    async with office() as here:
        grant = Grant(policies=("support",), emergency_roles=("administrator", "auditor"))
        made = await here.service.clients.create("shop", "default", grant)
        token, ident = await here.token(made), made.client.id
        plain = seen(here.service.tokens, token)
        assert (plain.admin, plain.policies) == (False, ("support",))
        for role, admin, roles, policies in (
            ("administrator", True, (), ()),
            ("auditor", False, (Role.AUDITOR,), ("support",)),
        ):
            await here.service.clients.take(ident, Emergency(role, "fire", here.clock() + 60_000))
            taken = seen(here.service.tokens, token)
            assert (taken.admin, taken.roles, taken.policies) == (admin, roles, policies)
            with pytest.raises(VaultError) as refused:
                await here.service.clients.take(
                    ident, Emergency(role, "more", here.clock() + 90_000)
                )
            assert refused.value.code is Code.CONFLICT
            here.clock.advance(59_999)
            # what another process reads has the same end: a restart lengthens nothing
            async with office(here.store, here.keyset, here.clock) as again:
                assert seen(again.service.tokens, token) == taken
                here.clock.advance(1)
                for one in (here, again):
                    assert seen(one.service.tokens, token) == plain
        here.clock.advance(300_000)
        with pytest.raises(VaultError):
            here.service.tokens.principal(token)


async def test_a_role_of_an_emergency_lengthens_no_token():
    async with office() as here:
        made = await here.service.clients.create(
            "shop", "default", Grant(emergency_roles=("auditor",))
        )
        token = await here.token(made)
        ends_at = here.clock() + 3_600_000
        await here.service.clients.take(made.client.id, Emergency("auditor", "fire", ends_at))
        here.clock.advance(300_000)
        with pytest.raises(VaultError):
            here.service.tokens.principal(token)
