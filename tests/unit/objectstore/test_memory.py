from proxy.objectstore.memory import MemoryObjects, open_memory_objects


async def test_every_opening_is_a_place_of_its_own():
    one, other = await open_memory_objects(""), await open_memory_objects("")
    await one.claim("one")
    assert await other.owner() is None


async def test_a_closed_place_can_still_be_looked_at():
    objects = MemoryObjects()
    await objects.claim("one")
    await objects.close()
    assert await objects.owner() == "one"
