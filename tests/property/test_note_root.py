"""Whoever writes to the notes of a store without a key is noticed, whatever is done to them."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from proxy.auth.sealed_notes import note_root
from proxy.crypto.keyset import Keyset
from proxy.errors import VaultError
from proxy.storage.notes import ROOT
from tests.support.effort import examples
from tests.support.memory import MemoryStore

AEAD = Keyset.create("default").aead()
NAMES = ("clients/1:default", "clients/2:default", "policies:default", "keyset:default")
ALL = (*NAMES, ROOT, "more:default")

#: What is done: a note is put back as it was at some moment, takes the place of another one, is
#: removed, or gets bytes of nobody.
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("back"), st.sampled_from(ALL), st.integers(0, 5)),
        st.tuples(st.just("all back"), st.just(ROOT), st.integers(0, 5)),
        st.tuples(st.just("exchange"), st.sampled_from(ALL), st.sampled_from(ALL)),
        st.tuples(st.just("remove"), st.sampled_from(ALL), st.none()),
        st.tuples(st.just("bytes"), st.sampled_from(ALL), st.binary(min_size=1, max_size=60)),
    ),
    min_size=1,
    max_size=4,
)


async def written() -> tuple[MemoryStore, list[dict[str, bytes]]]:
    """A store in which notes were written, and all notes as they were after each write."""
    store = MemoryStore()
    store.root = note_root(AEAD)
    moments: list[dict[str, bytes]] = []
    for number, name in enumerate((*NAMES, *NAMES[:2])):
        before = await store.note(name)
        await store.put_note(name, b"%d of %b" % (number, name.encode()), before)
        moments.append(await store.read_notes())
    return store, moments


def edited(
    notes: dict[str, bytes], moments: list[dict[str, bytes]], edits: list[tuple[str, str, object]]
) -> dict[str, bytes]:
    for kind, name, how in edits:
        content = notes.get(name)
        if kind == "all back":
            assert isinstance(how, int)
            notes = dict(moments[how])
            continue
        if kind == "back":
            assert isinstance(how, int)
            content = moments[how].get(name)
        elif kind == "exchange":
            assert isinstance(how, str)
            content = notes.get(how)
        else:
            content = how if isinstance(how, bytes) else None
        notes = {other: note for other, note in notes.items() if other != name}
        if content is not None:
            notes[name] = content
    return notes


@examples(200)
@given(EDITS)
def test_no_edit_of_notes_goes_unnoticed_and_none_is_read(
    edits: list[tuple[str, str, object]],
) -> None:
    async def trial() -> None:
        store, moments = await written()
        store._notes = edited(dict(moments[-1]), moments, edits)
        wrong = {name for name in ALL if store._notes.get(name) != moments[-1].get(name)}
        assert await store.check_notes() == wrong
        for name in NAMES:
            try:
                read = await store.note(name)
            except VaultError:
                continue
            assert read == moments[-1].get(name), "what is read is what was written last"

    asyncio.run(trial())
