"""Other keys for an environment: a fresh data key, fewer of them, or its keyset wrapped anew by another master key.

What is stored comes first, always: a wrapped keyset is opened before it is written, written only over the one that it was made
from, and read back before anybody uses it. So there is no moment at which a crash leaves a vault that does not open, and
two processes, or the end of an environment, never undo each other.
"""

from collections.abc import Collection

from proxy.crypto.keyset import Keyset
from proxy.crypto.master import MasterKey
from proxy.errors import Code, VaultError
from proxy.storage.base import Store
from proxy.vault.vault import keyset_note


async def renew(store: Store, master: MasterKey, keyset: Keyset) -> None:
    """Give a keyset in use a fresh data key, which everything new is sealed with when this returns; older ones still open.

    Raises ``VaultError``: BAD_KEYS when the master key is not that of this vault, CONFLICT when somebody else changes the keyset,
    and what the store raises. Nothing is changed in use then.
    """
    before = await _stored(store, keyset.environment)
    fresh = Keyset.unwrap(before, master).rotated()
    keyset.adopt(await _put(store, master, fresh, before))


async def drop(store: Store, master: MasterKey, keyset: Keyset, keys: Collection[str]) -> None:
    """Take data keys out of a keyset in use; whatever they have sealed never opens again. Raises as ``renew``.

    What is stored is written first, and read back: after a crash the keys are there, or they are gone. The caller knows that nothing
    needs them. ``ValueError`` for the key that seals.
    """
    before = await _stored(store, keyset.environment)
    keyset.forget(await _put(store, master, Keyset.unwrap(before, master).without(keys), before))


async def rewrap(store: Store, master: MasterKey, environment: str) -> bool:
    """Wrap the environment's keyset with the present master key; whether it was another one's. Raises as ``renew``.

    No effect on an environment that has ended.
    """
    before = await store.note(keyset_note(environment))
    if before is None or Keyset.wrapper(before) == master.id:
        return False
    await _put(store, master, Keyset.unwrap(before, master), before)
    return True


async def wrapper(store: Store, environment: str) -> str | None:
    """The id of the master key that the environment's keyset is wrapped with; ``None``: it has ended."""
    note = await store.note(keyset_note(environment))
    return None if note is None else Keyset.wrapper(note)


async def _put(store: Store, master: MasterKey, keyset: Keyset, before: bytes) -> Keyset:
    wrapped = keyset.wrap(master)
    _same(keyset, Keyset.unwrap(wrapped, master))
    await store.put_note(keyset_note(keyset.environment), wrapped, before)
    return _same(keyset, Keyset.unwrap(await _stored(store, keyset.environment), master))


def _same(keyset: Keyset, read: Keyset) -> Keyset:
    """The keyset as read back. Raises ``VaultError(BAD_STORE)`` when it is another one."""
    if not read.same(keyset):
        raise VaultError(Code.BAD_STORE, "The wrapped keys do not read back as they were written: check the disk.")
    return read


async def _stored(store: Store, environment: str) -> bytes:
    note = await store.note(keyset_note(environment))
    if note is None:
        raise VaultError(Code.BAD_KEYS, f"The keys of the environment {environment!r} are not in the store any more.")
    return note
