"""The notes of a store under one root: none is changed, put back, added or removed unnoticed.

The root is a note itself: a counter that only rises and a digest of every other note, sealed with a
key that the store does not have. It is written in the transaction of the notes that it covers, and
compared with every note that is read. A note comes under the root by ``put_note`` or ``put_notes``;
there is nothing else to do. Several processes may write: each write names the root that it was made
from, and is made again where another process was faster.

A root cannot tell when the whole store is put back; the audit lines have its counter for that.
"""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from proxy.errors import CannotOpen, Code, VaultError, coded
from proxy.storage.query import changed_meanwhile

#: The note that holds the root. Its name has no environment: it stays when one ends.
ROOT: Final = "root"

_DIGEST: Final = 16

_REFUSAL: Final = (
    "The note {} of the store is not the one that was written last: it was changed, put back, "
    "added or removed by something else than this program. Restore the store from a backup, or "
    "look at what is there and run `domicile store accept-notes`."
)


class NoteWrite(NamedTuple):
    """A note of a write, which is atomic."""

    name: str
    content: bytes | None  #: ``None``: the note is removed
    expected: bytes | None  #: its expected content; ``None``: absent


class ResealedNote(NoteWrite):
    """One that says the same as before: of several replicas, any may write it at any time."""

    __slots__ = ()


class FollowedNote(NoteWrite):
    """One that every replica follows: it may be written beside others."""

    __slots__ = ()


class Agreement(NamedTuple):
    """Proposal that all replicas may agree to (``Replicas.agree``)."""

    job: str  #: note of the job that proposes it
    proposal: int  #: its number; who agrees to 0 agrees to whatever is proposed


class AgreedNote(NoteWrite):
    """Note that is read at the start, and may be written beside other replicas that have agreed."""

    agreement: Agreement

    @classmethod
    def of(cls, write: NoteWrite, agreement: Agreement) -> "AgreedNote":
        note = cls(*write)
        note.agreement = agreement
        return note


class RootState(msgspec.Struct, frozen=True):
    """Content of a root note."""

    counter: int = 0  #: of writes
    digests: dict[str, bytes] = {}  #: by name of the note

    def fits(self, name: str, content: bytes | None) -> bool:
        """Whether a note is the one that was written last."""
        return self.digests.get(name) == (None if content is None else note_digest(content))

    def after(self, writes: Iterable[NoteWrite]) -> "RootState":
        """The state behind these writes."""
        digests = dict(self.digests)
        for name, content, _ in writes:
            if content is None:
                digests.pop(name, None)
            else:
                digests[name] = note_digest(content)
        return RootState(self.counter + 1, digests)

    def misfits(self, present: Mapping[str, bytes]) -> list[str]:
        """The names of notes that are not as they were written; ``present`` are all there are."""
        names = (present.keys() | self.digests.keys()) - {ROOT}
        return sorted(name for name in names if not self.fits(name, present.get(name)))


class NoteRoot:
    """The root of one store, as this process has last read or written it.

    ``seal`` and ``unseal`` are those of a key that the store does not have; the latter raises
    ``VaultError(CANNOT_OPEN)``.
    """

    def __init__(self, seal: Callable[[bytes], bytes], unseal: Callable[[bytes], bytes]) -> None:
        self._seal, self._unseal = seal, unseal
        self.state = RootState()
        self.stored: bytes | None = None
        self.faults: set[str] = set()  #: names of notes that were found to be others
        #: Hears of each of them once.
        self.alarm: Callable[[str], None] = lambda _name: None

    def read(self, stored: bytes | None) -> None:
        """Take the root that is stored now.

        Raises ``VaultError(CANNOT_OPEN)`` where it is gone, not this program's, or an older one.
        """
        if stored is None or stored != self.stored:
            try:
                state = _decode(self._unseal(stored or b""))
            except CannotOpen:
                raise self.misfit(ROOT) from None
            if state.counter <= self.state.counter:
                raise self.misfit(ROOT)
            self.stored, self.state = stored, state
        self.faults.discard(ROOT)

    def sealed(self, writes: Iterable[NoteWrite]) -> NoteWrite:
        """The write of the root that goes with these."""
        return NoteWrite(ROOT, self._seal(_encode(self.state.after(writes))), self.stored)

    def count_from(self, counter: int) -> None:
        """Count the next write from there, since the store was put back."""
        self.state = RootState(max(counter, self.state.counter), self.state.digests)

    def compare(self, name: str, content: bytes | None) -> None:
        """Raise ``VaultError(CANNOT_OPEN)`` for a note that is not the one written last."""
        if not self.state.fits(name, content):
            raise self.misfit(name)
        self.faults.discard(name)

    def misfit(self, name: str) -> VaultError:
        """The refusal of a note that is not the one that was written last; raises the alarm."""
        if name not in self.faults:
            self.faults.add(name)
            self.alarm(name)
        return VaultError(Code.CANNOT_OPEN, _REFUSAL.format(name))


class RootedNotes(ABC):
    """The notes of an engine, which itself reads and writes them as bytes.

    While ``root`` is ``None`` nothing is compared.
    """

    def __init__(self) -> None:
        self.root: NoteRoot | None = None
        self._rooting = asyncio.Lock()

    @abstractmethod
    async def read_notes(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        """The notes of these names, or all, as they are at one instant; absent ones are left out.

        Nothing is compared with the root.
        """

    @abstractmethod
    async def write_notes(self, writes: Sequence[NoteWrite]) -> None:
        """Make these writes in one durable transaction, the root left as it is.

        Raises ``VaultError(CONFLICT)`` for a note that is not as expected.
        """

    @abstractmethod
    async def notes(self, ending: str) -> list[str]:
        """The names of all notes that end with that text, in order."""

    async def note(self, name: str) -> bytes | None:
        """A note, or ``None``. Raises ``VaultError(CANNOT_OPEN)`` where it is another's."""
        content = (await self.read_notes((name,))).get(name)
        if self.root is None or self.root.state.fits(name, content):
            return content
        async with self._rooting:
            content = (await self._read_again(self.root, (name,))).get(name)
            self.root.compare(name, content)
            return content

    async def put_note(self, name: str, content: bytes, expected: bytes | None) -> None:
        """Write one note; as ``put_notes``."""
        await self.put_notes((NoteWrite(name, content, expected),))

    async def put_notes(self, writes: Sequence[NoteWrite]) -> None:
        """Make these writes and that of the root, durably, all or none.

        Raises ``VaultError``: CONFLICT for a note that is not as expected, CANNOT_OPEN for one
        that was changed by something else than this program.
        """
        async with self._rooting:
            root = self.root
            if root is None:
                await self.write_notes(writes)
                return
            while not await self._written(root, writes):
                await self._as_expected(root, writes)

    async def drop_notes(self, ending: str, kind: type[NoteWrite] = NoteWrite) -> None:
        """Remove every note whose name ends with that text, all at once and durably; ``kind`` is
        that of the write.

        None: no effect. A foreign note is removed, too.
        """
        names = set(await self.notes(ending))
        if self.root is not None:
            names |= {name for name in self.root.state.digests if name.endswith(ending)}
        present = await self.read_notes(sorted(names))
        if names:
            await self.put_notes([kind(name, None, present.get(name)) for name in sorted(names)])

    async def refresh(self) -> Mapping[str, bytes]:
        """The digests of all notes by name, as last written by any replica.

        Raises ``VaultError(CANNOT_OPEN)`` as ``note``.
        """
        if self.root is None:
            return {}
        async with self._rooting:
            await self._read_again(self.root, ())
        return self.root.state.digests

    async def check_notes(self) -> set[str]:
        """Compare every note with the root; the names of those that are others."""
        root = self.root
        if root is None:
            return set()
        async with self._rooting:
            present = await self.read_notes()
            try:
                root.read(present.get(ROOT))
            except VaultError:  # the alarm is raised; the notes are compared with the root before
                pass
            misfits = root.state.misfits(present)
            for name in misfits:
                root.misfit(name)
            root.faults.intersection_update({ROOT, *misfits})
            return set(root.faults)

    async def _read_again(self, root: NoteRoot, names: Sequence[str]) -> dict[str, bytes]:
        """These notes, and the root of the same instant taken."""
        present = await self.read_notes((*names, ROOT))
        root.read(present.get(ROOT))
        return present

    async def _written(self, root: NoteRoot, writes: Sequence[NoteWrite]) -> bool:
        """Write them with the root that goes with them; ``False``: something is not as expected."""
        if not all(_fits(root.state, write) for write in writes):
            return False
        stamp = root.sealed(writes)
        try:
            await self.write_notes((*writes, stamp))
        except coded(Code.CONFLICT):
            return False
        root.stored, root.state = stamp.content, root.state.after(writes)
        return True

    async def _as_expected(self, root: NoteRoot, writes: Sequence[NoteWrite]) -> None:
        """Raise ``VaultError`` unless it was the root alone that was another one."""
        present = await self._read_again(root, [write.name for write in writes])
        for name, content, expected in writes:
            if content is not None:  # one that is removed may be anything
                root.compare(name, present.get(name))
            if present.get(name) != expected:
                raise changed_meanwhile(name)


class CopiedNotes(RootedNotes):
    """Notes as a store had them at one instant; what is written to them lasts no longer."""

    def __init__(self, notes: Mapping[str, bytes]) -> None:
        super().__init__()
        self._notes = dict(notes)

    async def read_notes(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        wanted = self._notes if names is None else names
        return {name: self._notes[name] for name in wanted if name in self._notes}

    async def write_notes(self, writes: Sequence[NoteWrite]) -> None:
        for name, _, expected in writes:
            if self._notes.get(name) != expected:
                raise changed_meanwhile(name)
        for name, content, _ in writes:
            self._notes.pop(name, None)
            if content is not None:
                self._notes[name] = content

    async def notes(self, ending: str) -> list[str]:
        return sorted(name for name in self._notes if name.endswith(ending))


def note_digest(content: bytes) -> bytes:
    """The digest by which a root knows a note."""
    return hashlib.sha256(content).digest()[:_DIGEST]


def _fits(state: RootState, write: NoteWrite) -> bool:
    return write.content is None or state.fits(write.name, write.expected)


_decode = msgspec.msgpack.Decoder(RootState).decode
_encode = msgspec.msgpack.Encoder().encode
