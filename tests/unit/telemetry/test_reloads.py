import asyncio

from proxy.errors import Code, Detail, VaultError
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import FileWatcher, Reload
from tests.support.patience import PATIENCE

FAULT = VaultError(
    Code.BAD_RULES, "One fault.", (Detail("/etc/rules/crm.yaml:3:1", "unknown key"),)
)


async def test_a_failure_is_told_until_a_good_version_clears_it():
    metrics = Metrics()
    state = Reload(metrics, "rules")
    assert (await state.check(), metrics.cell("domicile_reload_failed", "rules").value) == (None, 0)
    state.failed(FAULT)
    assert await state.check() == "One fault. /etc/rules/crm.yaml:3:1: unknown key"
    assert metrics.cell("domicile_reload_failed", "rules").value == 1
    state.failed(VaultError(Code.VAULT_DOWN, "The vault is down."))
    assert await state.check() == "The vault is down."
    state.succeeded()
    assert (await state.check(), metrics.cell("domicile_reload_failed", "rules").value) == (None, 0)


async def test_places_of_files_are_not_told_where_another_sentence_is_given():
    state = Reload(Metrics(), "policies", "The log names the place.")
    state.failed(FAULT)
    assert await state.check() == "The log names the place."


async def reloaded(prints: list[str], count: int, *, settled: bool) -> list[object]:
    """What the watcher had seen last at each of so many reloads, where looks tell these prints."""
    looks = iter([*prints, *prints[-1:] * 1000])
    watcher = FileWatcher(lambda: next(looks), settled=settled)
    seen: list[object] = []
    enough = asyncio.Event()

    async def reload() -> None:
        seen.append(watcher.last)
        if len(seen) == count:
            enough.set()

    watching = asyncio.create_task(watcher.run(0.001, reload))
    async with asyncio.timeout(PATIENCE):
        await enough.wait()
    await asyncio.sleep(0.02)  # nothing changes any more
    watching.cancel()
    return seen


async def test_each_change_of_files_reloads_them_once():
    assert await reloaded(["a", "a", "b", "b", "c"], 2, settled=False) == ["b", "c"]


async def test_files_that_are_being_replaced_are_read_when_they_stay_as_they_are():
    assert await reloaded(["a", "b", "c", "d"], 1, settled=True) == ["d"]


async def test_files_are_read_again_when_that_is_due_and_not_when_they_were_read_meanwhile():
    state = ["a"]
    watcher = FileWatcher(lambda: state[0])
    reloads: list[object] = []

    async def reload() -> None:
        reloads.append(watcher.last)

    state[0] = "b"
    watcher.mark_read()
    watching = asyncio.create_task(watcher.run(0.001, reload))
    await asyncio.sleep(0.02)
    assert reloads == []
    watching.cancel()
    watching = asyncio.create_task(watcher.run(0.001, reload, lambda: not reloads))
    async with asyncio.timeout(PATIENCE):
        while not reloads:  # noqa: ASYNC110  # it comes when it is due
            await asyncio.sleep(0.001)
    watching.cancel()
    assert reloads == ["b"]
