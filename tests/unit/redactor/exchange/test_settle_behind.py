"""Settles that no answer waits for: which ones, what is locked meanwhile, what becomes of those that
fail.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.storage.base import CommitEnded
from proxy.storage.changes import Bind, Change, Conflict, Replace
from proxy.storage.memory import MemoryStore
from tests.support.exchanges import Desk, desk
from tests.support.stores import vault_down

ANN = {
    "name": "Ann Wexlomere", "email": "Ann@Wexlomere.example", "phone": "+46 70 918 27 36",
    "born": "1931-02-27", "tags": ["one", "two"],
}  # fmt: skip


class Slow(MemoryStore):
    """Commits that nobody waits for end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[str, Sequence[Change], CommitEnded]] = []

    async def commit_behind(
        self,
        table: str,
        changes: Sequence[Change],
        _touched: Sequence[int | bytes],
        ended: CommitEnded,
    ) -> None:
        self.waiting.append((table, changes, ended))

    async def go_on(self, fault: Exception | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for table, changes, ended in waiting:
            if fault is None:
                await self.commit(table, changes)
            ended(fault)


async def slow_desk() -> tuple[Desk, Slow]:
    store = Slow()
    return await desk(store=store), store


async def echoed(one: Desk, match: str, body: dict[str, Any], ident: int = 1) -> Any:
    """A write whose answer shows what was sent."""
    call = await one.send(match, body)
    return await call.seen(201 if match.startswith("POST") else 200, {**call.json, "id": ident})


async def test_a_create_that_is_shown_is_answered_before_it_has_its_name():
    one, store = await slow_desk()
    assert await echoed(one, "POST /p", ANN) == {**ANN, "id": 1}
    assert await one.counts() == (1, 1, 0)
    (_, changes, _) = store.waiting[0]
    assert [type(change) for change in changes] == [Bind]
    assert len(one.people.state.locks) == 1
    await store.go_on()
    assert await one.counts() == (1, 0, 0)
    assert one.idle
    assert one.events["settled"] == 1


async def test_an_update_with_new_tokens_is_answered_before_it_is_live():
    one, store = await slow_desk()
    await echoed(one, "POST /p", ANN)
    await store.go_on()
    assert (await echoed(one, "PATCH /p/1", {"name": "Bo"}))["name"] == "Bo"
    (_, changes, _) = store.waiting[0]
    assert any(isinstance(change, Replace) for change in changes)
    assert await one.counts() == (1, 0, 1)
    await store.go_on()
    assert await one.counts() == (1, 0, 0)
    assert one.idle
    assert one.events["settled"] == 2


@pytest.mark.parametrize("match", ["PATCH /p/1", "DELETE /p/1"])
async def test_the_next_writer_of_the_record_waits_until_it_is_durable(match):
    one, store = await slow_desk()
    await echoed(one, "POST /p", ANN)
    body: Any = {"name": "Bo"} if match.startswith("PATCH") else b""
    waiting = asyncio.ensure_future(one.send(match, body))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    await store.go_on()
    await (await waiting).exchange.failed(False)
    assert one.idle


#: An update, and what the application shows of what it was sent.
UNDECIDED: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "nothing is shown": ({"name": "Bo"}, lambda _sent: {}),
    "another field is shown": ({"name": "Bo"}, lambda _sent: {"email": "some@where.example"}),
    "a field is erased": ({"name": "Bo", "tags": []}, lambda sent: sent),
    "a part is shown": ({"tags": ["three", "four"]}, lambda sent: {"tags": sent["tags"][:1]}),
}


@pytest.mark.parametrize("case", UNDECIDED)
async def test_what_no_answer_could_decide_is_waited_for(case):
    one, store = await slow_desk()
    call = await one.send("POST /p", ANN)
    await call.answer(201, {"id": 1})
    assert store.waiting == []
    body, shown = UNDECIDED[case]
    call = await one.send("PATCH /p/1", body)
    await call.answer(200, {**shown(call.json), "id": 1})
    assert store.waiting == []
    assert await one.counts() == (1, 0, 0)
    await (await one.send("DELETE /p/1")).answer(204)
    assert store.waiting == []
    assert one.idle


async def test_an_update_whose_tokens_are_the_same_is_waited_for():
    one = await desk(
        "{match: POST /p, create: p, response: {id: $.id}}",
        '{match: "PATCH /p/{id}", update: p, response: {id: $.id}}',
        fields=("name: {kind: name}", "vip: {kind: text, token: {shape: fixed, value: x}}"),
        store=(store := Slow()),
    )
    await echoed(one, "POST /p", {"name": "Ann", "vip": "yes"})
    await store.go_on()
    await echoed(one, "PATCH /p/1", {"vip": "no"})
    assert store.waiting == []
    assert await one.counts() == (1, 0, 0)


async def test_a_record_without_tokens_of_its_own_is_waited_for():
    store = Slow()
    born = "born: {kind: date, token: {shape: date}}"
    one = await desk("{match: POST /p, create: p}", fields=(born,), store=store)
    await echoed(one, "POST /p", {"born": "1931-02-27"})
    assert store.waiting == []
    assert await one.counts() == (1, 0, 0)


async def test_an_id_that_the_vault_has_already_is_told_before_the_answer():
    one, store = await slow_desk()
    await echoed(one, "POST /p", ANN)
    await store.go_on()
    await echoed(one, "POST /p", {**ANN, "name": "Cy"})
    assert store.waiting == []
    assert one.events["displaced"] == 1
    assert "see its history" in one.audit.lines[-1]["reason"]


@pytest.mark.parametrize("match", ["POST /p", "PATCH /p/1"])
async def test_what_the_store_cannot_write_is_settled_later(match):
    one, store = await slow_desk()
    if match.startswith("PATCH"):
        await echoed(one, "POST /p", ANN)
        await store.go_on()
    await echoed(one, match, {"name": "Bo"})
    await store.go_on(vault_down())
    assert one.events["late"] == 1
    assert one.vault.behind
    await one.vault.upkeep()
    assert await one.counts() == (1, 0, 0)
    assert one.idle


async def test_what_changed_meanwhile_is_settled_at_once_in_general():
    one, store = await slow_desk()
    await echoed(one, "POST /p", ANN)
    (_, changes, _) = store.waiting[0]
    await store.go_on(Conflict(changes[0]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not one.vault.behind
    assert await one.counts() == (1, 0, 0)
    assert one.idle


async def test_a_store_that_refuses_at_once_is_waited_for():
    class Refusing(Slow):
        async def commit_behind(self, *_arguments: Any) -> None:
            raise VaultError(vault_down().code, "closed")

    one = await desk(store=Refusing())
    await echoed(one, "POST /p", ANN)
    await echoed(one, "PATCH /p/1", {"name": "Bo"})
    assert await one.counts() == (1, 0, 0)
    assert one.idle
