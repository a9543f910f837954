import pytest

from proxy.audit import services
from proxy.audit.chain import VolatileMemory
from proxy.audit.services import Honeytoken, Honeytokens
from proxy.errors import Code, VaultError

ONE = Honeytoken("m1", "default", "p", 7)


async def test_a_bait_is_known_by_its_mark_and_by_its_number_and_outlives_the_process():
    memory = VolatileMemory()
    made = Honeytokens(memory)
    await made.load()
    assert not made
    await made.add(ONE)
    await made.add(ONE)
    again = Honeytokens(memory)
    await again.load()
    assert again
    assert "m1" in again
    assert "m0" not in again
    assert again.touched("default", "p", {6, 7}) == ["m1"]
    assert again.touched("default", "p", {6}) == again.touched("default", "q", {7}) == []
    await again.remove("m0")
    await again.remove("m1")
    assert not again
    assert "m1" not in again
    assert again.touched("default", "p", {7}) == []


async def test_there_is_a_bound(monkeypatch):
    monkeypatch.setattr(services, "MOST_HONEYTOKENS", 1)
    made = Honeytokens(VolatileMemory())
    await made.add(ONE)
    with pytest.raises(VaultError) as raised:
        await made.add(Honeytoken("m2", "default", "p", 8))
    assert raised.value.code is Code.UNPROCESSABLE
    await made.add(Honeytoken("m1", "default", "p", 9))
    assert made.touched("default", "p", {9}) == ["m1"]
