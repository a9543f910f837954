import asyncio

from proxy.bootstrap import environment_keys
from proxy.bootstrap import keys as composed
from proxy.vault.maintenance import next_keyset_note
from tests.support.patience import PATIENCE
from tests.unit.bootstrap.test_keys import shop

__all__ = ["shop"]


async def test_a_key_that_has_sealed_enough_is_followed_by_another_also_over_restarts(
    shop, monkeypatch
):
    monkeypatch.setattr(composed, "MOST_SEALINGS", 1000)
    monkeypatch.setattr(environment_keys, "_NOTED", 100)
    keys = await shop.open()
    await keys.start()
    aead = shop.vaults[1].keyset.aead()
    aead.sealings = 600
    await keys._maintain()
    aead.sealings += 50  # nobody writes these down before the process dies
    again = await shop.open()
    await again.start()
    assert 650 <= (await again.listed()).environments[1].sealings <= 750
    before = shop.vaults[1].keyset.data_keys[-1]
    shop.vaults[1].keyset.aead().sealings = 400
    await again._maintain()
    told = (await again.listed()).environments[1]  # by now the key before may be dropped
    assert (told.keys[-1] != before, told.sealings) == (True, 0)
    await again.close()
    last = await shop.open()
    await last.start()
    assert (await last.listed()).environments[1].sealings == 0
    await last.close()


async def test_a_next_keyset_that_nobody_uses_any_more_goes_by_itself(shop):
    async with (await shop.open((2.0, 15.0, 1.0))).running() as keys:
        name = next_keyset_note("default")
        left = shop.vaults[0].keyset.rotated().wrap(shop.source.load())
        await shop.store.put_note(name, left, None)
        await keys.follow("default")
        await keys.follow("default")
        assert await shop.store.note(name) == left, "its writer may be at work"
        async with asyncio.timeout(PATIENCE):
            while await shop.store.note(name) is not None:
                await asyncio.sleep(0.1)
                await keys.follow("default")
        await keys.follow("an environment that has ended")
