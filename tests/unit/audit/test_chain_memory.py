from proxy.audit.chain import CHAIN_START, Checkpoint, Link, recall, remember
from tests.support.audit import Remembered


async def test_what_is_remembered_is_recalled_and_at_first_there_is_nothing():
    memory = Remembered()
    assert await recall(memory) == Checkpoint(CHAIN_START, CHAIN_START)
    await remember(memory, Checkpoint(Link(3, "a" * 32), Link(9, "b" * 32)))
    assert await recall(memory) == Checkpoint(Link(3, "a" * 32), Link(9, "b" * 32))
