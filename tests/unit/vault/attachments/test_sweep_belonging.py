import pytest

from proxy.errors import Code, VaultError
from proxy.objectstore.memory import MemoryObjects
from proxy.storage.memory import MemoryStore
from proxy.vault.attachments.sweep import belong, check_pair
from tests.support.attached import as_object


async def filled(objects: MemoryObjects) -> None:
    await objects.put("ab" + "0" * 46, as_object(b"x"))


async def refused(objects: MemoryObjects | None, store: MemoryStore) -> str:
    with pytest.raises(VaultError) as caught:
        await check_pair(objects, store)
    assert caught.value.code is Code.BAD_STORE
    if objects is not None:
        with pytest.raises(VaultError):
            await belong(objects, store)
    return caught.value.message


async def test_what_is_new_is_marked_and_belongs_together_from_then_on():
    objects, store = MemoryObjects(), MemoryStore()
    await check_pair(None, store)
    await check_pair(objects, store)
    assert await objects.owner() is None, "a check marks nothing"
    await belong(objects, store)
    await filled(objects)
    mark = await objects.owner()
    await belong(objects, store)
    assert mark == await objects.owner()
    assert mark is not None


async def test_the_files_of_another_vault_are_refused():
    objects, store, other = MemoryObjects(), MemoryStore(), MemoryStore()
    await belong(objects, store)
    await filled(objects)
    assert "another vault" in await refused(objects, other)
    await belong(MemoryObjects(), other)
    assert "another vault" in await refused(objects, other)
    await belong(objects, store)


async def test_an_empty_place_is_no_stand_in_for_what_a_disk_had():
    objects, store = MemoryObjects(), MemoryStore()
    await belong(objects, store)
    assert "mount" in await refused(MemoryObjects(), store)
    assert "mount" in await refused(None, store)


async def test_an_operator_who_lost_the_files_can_go_on_as_the_text_says():
    objects, store, empty = MemoryObjects(), MemoryStore(), MemoryObjects()
    await belong(objects, store)
    text = await refused(empty, store)
    mark = text.partition("write the line ")[2].partition(" ")[0]
    await empty.claim(mark)
    await belong(empty, store)


async def test_a_first_start_that_ended_between_the_two_marks_is_taken_up():
    objects, store = MemoryObjects(), MemoryStore()
    await objects.claim("half")
    await belong(objects, store)
    assert await objects.owner() == "half"
    await belong(objects, store)
