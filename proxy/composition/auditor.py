"""What an auditor needs beside the files of the log: its keys, and what is remembered of it; also while an instance runs."""

from typing import NamedTuple, cast

from proxy.audit.chain import Mac
from proxy.audit.marks import Mark
from proxy.audit.memory import Known, recall
from proxy.composition.audit import chain_of, mark_of, memory_of
from proxy.composition.stores import key_source, open_with_key, refuse_no_vault
from proxy.config import Settings
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.environment import DEFAULT
from proxy.storage.base import Store
from proxy.storage.peeking import peek
from proxy.vault.vault import keyset_note


class Auditor(NamedTuple):
    """Whoever looks at the log."""

    mac: Mac
    mark: Mark
    known: Known


class _Notes:
    """Notes as they were a moment ago."""

    def __init__(self, notes: dict[str, bytes]) -> None:
        self._notes = notes

    async def note(self, name: str) -> bytes | None:
        return self._notes.get(name)


async def auditor(settings: Settings) -> Auditor:
    """The keys of the log and what is remembered of it. Raises ``VaultError``: BAD_STORE where there is no vault, BAD_KEYS."""
    refuse_no_vault(settings)
    keyset_name = keyset_note(DEFAULT)
    names = (keyset_name, f"audit:{DEFAULT}")
    notes = await _read(settings, names)
    master = key_source(settings.keys).load()
    if keyset_name not in notes:
        raise VaultError(Code.BAD_STORE, f"The vault at {settings.store.path} has no keys yet: start it once.")
    keyset = Keyset.unwrap(notes[keyset_name], master)
    known = await recall(memory_of(cast(Store, _Notes(notes)), keyset))
    return Auditor(chain_of(keyset), mark_of(keyset), known)


async def _read(settings: Settings, names: tuple[str, ...]) -> dict[str, bytes]:
    try:
        store, _ = await open_with_key(settings)
    except VaultError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        return peek(settings.store.path, names)  # an instance runs: its database is looked at beside it
    try:
        return {name: note for name in names if (note := await store.note(name)) is not None}
    finally:
        await store.close()
