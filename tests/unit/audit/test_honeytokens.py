import pytest

from proxy.audit import honeytokens
from proxy.audit.chain import Forgetful
from proxy.audit.honeytokens import Bait, Baits
from proxy.errors import Code, VaultError

ONE = Bait("m1", "default", "p", 7)


async def test_a_bait_is_known_by_its_mark_and_by_its_number_and_outlives_the_process():
    memory = Forgetful()
    made = Baits(memory)
    await made.load()
    assert not made
    await made.add(ONE)
    await made.add(ONE)
    again = Baits(memory)
    await again.load()
    assert again
    assert "m1" in again
    assert again.among(["m0", "m1"]) == ["m1"]
    assert again.touched("default", "p", {6, 7}) == ["m1"]
    assert again.touched("default", "p", {6}) == again.touched("default", "q", {7}) == []
    await again.remove("m0")
    await again.remove("m1")
    assert not again
    assert again.among(["m1"]) == again.touched("default", "p", {7}) == []


async def test_there_is_a_bound(monkeypatch):
    monkeypatch.setattr(honeytokens, "MOST_HONEYTOKENS", 1)
    made = Baits(Forgetful())
    await made.add(ONE)
    with pytest.raises(VaultError) as raised:
        await made.add(Bait("m2", "default", "p", 8))
    assert raised.value.code is Code.UNPROCESSABLE
    await made.add(Bait("m1", "default", "p", 9))
    assert made.touched("default", "p", {9}) == ["m1"]
