from collections.abc import Sequence

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.changes import Remember
from proxy.vault.collection import Collection
from proxy.vault.expiry import prune
from proxy.vault.idempotency import KEEP, Answered, IdempotentRequest, Replies, system_collection
from proxy.vault.records.commit import ExtraChanges, attempt
from proxy.vault.records.create import store_records
from tests.support.contacts import contact, make_contacts
from tests.support.table import table

SCOPE = ("client", "POST", "/api/models/{schema}", "contact", "key-1")
ANSWER = Answered(201, {"Content-Type": "application/json"}, b'{"name":"Annabel"}')


def with_answer(once: IdempotentRequest) -> ExtraChanges:
    return lambda _records: once.changes(ANSWER)


async def answered(
    replies: Replies,
    collection: Collection,
    scope: Sequence[str] = SCOPE,
    request: bytes = b"request",
) -> Answered | None:
    async with replies.once(collection, scope, request) as once:
        return once.replay


async def refused(replies: Replies, collection: Collection, request: bytes = b"request") -> Code:
    with pytest.raises(VaultError) as caught:
        await answered(replies, collection, request=request)
    return caught.value.code


async def test_the_answer_of_a_write_is_given_to_its_repetitions() -> None:
    contacts, replies = await make_contacts(), Replies()
    collection = contacts.records.collection
    async with replies.once(collection, SCOPE, b"request") as once:
        assert (once.replay, once.in_commit) == (None, False)
        await store_records(contacts.records, [contact("a")], "x", with_answer(once))
        assert once.in_commit
    assert await answered(replies, collection) == ANSWER
    assert await answered(Replies(), collection) == ANSWER  # as after a restart


async def test_a_write_that_is_refused_leaves_no_answer() -> None:
    contacts, replies = await make_contacts(), Replies()
    await contacts.add(contact("a"))
    async with replies.once(contacts.records.collection, SCOPE, b"request") as once:
        with pytest.raises(VaultError) as caught:
            await store_records(contacts.records, [contact("a")], "x", with_answer(once))
    assert caught.value.code is Code.RECORD_EXISTS
    assert await answered(replies, contacts.records.collection) is None


async def test_what_does_not_write_keeps_its_answer_by_itself() -> None:
    contacts, replies = await make_contacts(), Replies()
    system = await system_collection(contacts.vault)
    async with replies.once(system, SCOPE, b"request") as once:
        await once.keep(ANSWER)
    assert await answered(replies, system) == ANSWER
    assert await answered(replies, contacts.records.collection) is None
    assert [made.name for made in contacts.vault.collections()] == ["contact"]


@table("place", range(len(SCOPE)))
async def test_a_key_belongs_to_one_client_and_one_operation(place: int) -> None:
    contacts, replies = await make_contacts(), Replies()
    collection = contacts.records.collection
    async with replies.once(collection, SCOPE, b"request") as once:
        await once.keep(ANSWER)
    other = [*SCOPE[:place], SCOPE[place] + "'", *SCOPE[place + 1 :]]
    assert await answered(replies, collection, other) is None


async def test_another_request_under_the_same_key_is_refused() -> None:
    contacts, replies = await make_contacts(), Replies()
    collection = contacts.records.collection
    async with replies.once(collection, SCOPE, b"request") as once:
        await once.keep(ANSWER)
    assert await refused(replies, collection, b"another") is Code.IDEMPOTENCY_CHECK_FAILED
    assert await answered(replies, collection) == ANSWER


async def test_while_the_first_one_runs_a_repetition_is_refused_and_after_a_failure_it_runs() -> (
    None
):
    contacts, replies = await make_contacts(), Replies()
    collection = contacts.records.collection
    first = replies.once(collection, SCOPE, b"request")
    await first.__aenter__()
    assert await refused(replies, collection) is Code.IDEMPOTENCY_CHECK_FAILED
    fault = OSError("the connection is gone")
    assert not await first.__aexit__(OSError, fault, None)
    assert await answered(replies, collection) is None


async def test_of_two_processes_one_answers() -> None:
    contacts, replies = await make_contacts(), Replies()
    collection = contacts.records.collection
    async with (
        replies.once(collection, SCOPE, b"request") as once,
        Replies().once(collection, SCOPE, b"request") as other,
    ):
        await once.keep(ANSWER)
        with pytest.raises(VaultError) as caught:
            await other.keep(ANSWER)
        assert caught.value.code is Code.IDEMPOTENCY_CHECK_FAILED
        with pytest.raises(VaultError) as caught:
            await store_records(contacts.records, [contact("a")], "x", with_answer(other))
        assert caught.value.code is Code.IDEMPOTENCY_CHECK_FAILED
    assert await contacts.keys("a") == []


async def test_an_answer_is_forgotten_after_a_day() -> None:
    contacts, replies = await make_contacts(), Replies()
    collection = contacts.records.collection
    async with replies.once(collection, SCOPE, b"request") as once:
        await once.keep(ANSWER)
    contacts.clock.advance(KEEP - 1)
    assert await answered(replies, collection) == ANSWER
    assert await prune(collection) == 0
    contacts.clock.advance(1)
    assert await answered(replies, collection) is None
    async with replies.once(collection, SCOPE, b"another") as once:
        await once.keep(ANSWER)
    contacts.clock.advance(KEEP)
    assert await prune(collection) == 1


async def test_the_store_sees_neither_key_nor_request_nor_answer_and_cannot_exchange_answers() -> (
    None
):
    contacts, replies = await make_contacts(), Replies()
    collection = contacts.records.collection
    made: list[Remember] = []
    for request in (b"request", b"another"):
        async with replies.once(collection, [*SCOPE, request.decode()], request) as once:
            made.extend(change for change in once.changes(ANSWER) if isinstance(change, Remember))
    seen = repr(made)
    assert not any(text in seen for text in ("key-1", "request", "Annabel", "client"))
    first, second = made
    changed = first._replace(reply=first.reply._replace(sealed=second.reply.sealed))
    assert await attempt(contacts.records, [changed])
    with pytest.raises(VaultError) as caught:
        await answered(replies, collection, [*SCOPE, "request"])
    assert caught.value.code is Code.CANNOT_OPEN
