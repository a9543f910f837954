from proxy.objectstore.memory import MemoryObjects


async def test_a_closed_place_can_still_be_looked_at():
    objects = MemoryObjects()
    await objects.claim("one")
    await objects.close()
    assert await objects.owner() == "one"
