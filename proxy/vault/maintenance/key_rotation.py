"""Key changes of an environment: a fresh key, fewer of them, or another master key around them.

The store comes first, always: a wrapped keyset is opened before it is written, written only over
the one that it was made from, and read back before use. So no crash leaves a vault that does not
open, and two processes, or the end of an environment, never undo each other.

Of several replicas one writes the next keyset beside the present one. Each reads it, opens from
then on whatever is under its keys, and agrees (``Replicas.agree``); hashes know both roots by then.
When all have agreed, the next keyset takes the place of the present one in a transaction during
which no replica joins, and each uses it as soon as it hears of that. A replica that cannot open it,
hangs, or is of a version before this one does not agree, and nothing is changed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from proxy.clock import system_clock
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.storage.base import Store
from proxy.storage.notes import AgreedNote, Agreement, NoteWrite
from proxy.storage.query import changed_meanwhile
from proxy.vault.environments import keyset_note
from proxy.vault.replicas import AGREED_WITHIN, BETWEEN_LOOKS, agreement_on, is_alone, taking_turns


async def renew_keys(
    store: Store, master: MasterKey, keyset: Keyset, patience: float = AGREED_WITHIN
) -> None:
    """Give a keyset in use a fresh data key, which everything new is sealed with when this returns;
    older ones still open.

    Raises ``VaultError``: BAD_KEYS if the master key is not that of this vault, CONFLICT if another
    process changes the keyset, REPLICAS_RUNNING if another replica has not agreed in
    ``patience`` seconds, and the errors of the store. The keys in use then stay.
    """
    keyset.adopt(await _succeed(store, master, keyset.environment, Keyset.rotated, patience))


async def renew_token_root(store: Store, master: MasterKey, keyset: Keyset) -> None:
    """Give a keyset in use a fresh token root; older ones resolve. Raises as ``renew_keys``."""
    keyset.adopt(await _succeed(store, master, keyset.environment, Keyset.with_token_root))


async def renew_hash_root(store: Store, master: MasterKey, keyset: Keyset, pause: float) -> None:
    """Add a fresh hash root to a keyset in use; data under the previous one is still found.

    Raises as ``renew_keys``, and ``VaultError(CONFLICT)`` while an older one is still needed. For
    ``pause`` seconds every hash knows its next form, so that earlier work can end.
    """
    if not await is_alone(store):
        keyset.adopt(await _succeed(store, master, keyset.environment, _with_hash_root))
        return
    before = await _stored(store, keyset.environment)
    fresh = _changed(_with_hash_root, Keyset.unwrap(before, master))
    keyset.prepare(fresh)
    try:
        await wait_running(pause)
        keyset.adopt(await _put(store, master, fresh, before))
    except BaseException:
        keyset.prepare(None)
        raise


def _with_hash_root(keyset: Keyset) -> Keyset:
    if len(keyset.hash_roots) > 1:
        raise VaultError(
            Code.CONFLICT,
            "The hash root before is still needed: wait until everything is under the one of now.",
        )
    return keyset.with_hash_root()


async def rewrap(
    store: Store, master: MasterKey, environment: str, patience: float = AGREED_WITHIN
) -> bool:
    """Wrap the environment's keyset with the present master key; whether it was another one's.

    Raises as ``renew_keys``. No effect on an environment that has ended.
    """
    before = await store.note(keyset_note(environment))
    if before is None or Keyset.wrapper(before) == master.id:
        return False
    await _succeed(store, master, environment, lambda keyset: keyset, patience)
    return True


async def drop_keys(
    store: Store,
    master: MasterKey,
    keyset: Keyset,
    keys: Collection[str],
    agreed: Agreement | None = None,
) -> bool:
    """Take data keys out of a keyset in use; whatever they have sealed never opens again.

    ``False``: another replica, which believed to lead as well, did so meanwhile.

    The store is written first, and read back: after a crash the keys are there, or they are gone.
    The caller knows that they are unused. ``agreed``: what all other replicas have agreed to, else
    there must be none: ``VaultError(REPLICAS_RUNNING)``. Otherwise raises as ``renew_keys``, and
    ``ValueError`` for the current key.
    """
    before = await _stored(store, keyset.environment)
    present = Keyset.unwrap(before, master)
    if not set(keys).isdisjoint(present.data_keys):
        try:
            keyset.forget(await _put(store, master, present.without(keys), before, agreed))
            return True
        except VaultError as error:
            present = Keyset.unwrap(await _stored(store, keyset.environment), master)
            if error.code is not Code.CONFLICT or not set(keys).isdisjoint(present.data_keys):
                raise
    keyset.follow(present)
    return False


async def drop_hash_root(
    store: Store, master: MasterKey, keyset: Keyset, agreed: Agreement | None = None
) -> None:
    """Take the older hash root out of a keyset in use: nothing is found by it any more.

    Raises as ``drop_keys``.
    """
    before = await _stored(store, keyset.environment)
    less = Keyset.unwrap(before, master).without_older_hash()
    keyset.forget(await _put(store, master, less, before, agreed))


async def wrapper(store: Store, environment: str) -> str | None:
    """The id of the master key that wraps the environment's keyset; ``None``: it ended."""
    note = await store.note(keyset_note(environment))
    return None if note is None else Keyset.wrapper(note)


async def follow_keyset(store: Store, master: MasterKey, keyset: Keyset) -> None:
    """Have the keys that the store has, which another replica may have changed.

    Raises as ``renew_keys``.
    """
    keyset.follow(Keyset.unwrap(await _stored(store, keyset.environment), master))


async def prepare_next(
    wrapped: bytes | None, load: Callable[[], Awaitable[MasterKey]], keyset: Keyset
) -> Agreement | None:
    """Know the keys of the next keyset; what there is to agree to, if any.

    ``wrapped``: the note of the next one, read before the keyset itself: one that is gone by then
    has taken its place, or was withdrawn. ``None``: there is none. Raises as ``renew_keys``,
    BAD_KEYS also where it is no successor.
    """
    following = None if wrapped is None else Keyset.unwrap(wrapped, await load())
    try:
        keyset.prepare(following)
    except ValueError:
        raise VaultError(
            Code.BAD_KEYS, "The next keys in the store do not follow those in use."
        ) from None
    return None if wrapped is None else agreement_on(next_keyset_note(keyset.environment), wrapped)


async def _succeed(
    store: Store,
    master: MasterKey,
    environment: str,
    change: Callable[[Keyset], Keyset],
    patience: float = AGREED_WITHIN,
) -> Keyset:
    """Change the stored keyset, with all replicas where there are several; the keyset as
    read back.
    """
    while True:
        before = await _stored(store, environment)
        fresh = _changed(change, Keyset.unwrap(before, master))
        if await is_alone(store):
            return await _put(store, master, fresh, before)
        try:
            return await _change_together(store, master, fresh, before, patience)
        except VaultError as error:
            dropped = await _stored(store, environment) != before  # the leader drops older keys
            if error.code is not Code.CONFLICT or not dropped:
                raise


def _changed(change: Callable[[Keyset], Keyset], before: Keyset) -> Keyset:
    return change(before).date(before, system_clock())


async def _change_together(
    store: Store, master: MasterKey, fresh: Keyset, before: bytes, patience: float
) -> Keyset:
    wrapped, environment = _wrapped(fresh, master), fresh.environment
    name = next_keyset_note(environment)
    async with taking_turns(store, name, BETWEEN_LOOKS):
        if await _stored(store, environment) != before:  # nobody could follow this one any more
            raise changed_meanwhile(keyset_note(environment))
        other = await store.note(name)  # of a replica that is gone, and its lock with it
        await store.put_notes([NoteWrite(name, wrapped, other)])
        try:
            if await _stored(store, environment) != before:  # an older key was dropped since
                raise changed_meanwhile(keyset_note(environment))
            present = NoteWrite(keyset_note(environment), wrapped, before)
            await _agreed(store, present, NoteWrite(name, None, wrapped), patience)
        except BaseException:
            with suppress(VaultError):  # it says no more than that something was tried
                await store.put_notes([NoteWrite(name, None, wrapped)])
            raise
    return _same(fresh, Keyset.unwrap(await _stored(store, environment), master))


async def _agreed(store: Store, present: NoteWrite, gone: NoteWrite, patience: float) -> None:
    """Write both notes as soon as all replicas have agreed to the next keyset.

    Raises ``VaultError(REPLICAS_RUNNING)``, which names those that have not in time.
    """
    agreement = agreement_on(gone.name, present.content)
    until = time.monotonic() + patience
    while True:
        blockers = await store.replicas.disagreeing(agreement) if store.replicas else ()
        try:
            if not blockers:
                return await store.put_notes([AgreedNote.of(present, agreement), gone])
        except VaultError as error:
            if error.code is not Code.REPLICAS_RUNNING:  # another replica has just come
                raise
        if time.monotonic() > until:
            raise VaultError(
                Code.REPLICAS_RUNNING,
                f"Nothing was changed, for not every instance knows the next keys after "
                f"{patience:.0f} seconds: {', '.join(blockers)}. Upgrade, repair or stop it, and "
                "give it the same master keys.",
            )
        await asyncio.sleep(BETWEEN_LOOKS)


async def wait_running(seconds: float) -> None:
    """Wait until this process has run for so long: while it stood still, no request has ended."""
    while seconds > 0:
        before = time.monotonic()
        await asyncio.sleep(min(seconds, BETWEEN_LOOKS))
        seconds -= min(time.monotonic() - before, BETWEEN_LOOKS)


def next_keyset_note(environment: str) -> str:
    """The note of the store that holds a keyset on its way, wrapped."""
    return f"next keyset:{environment}"


async def _put(
    store: Store, master: MasterKey, keyset: Keyset, before: bytes, agreed: Agreement | None = None
) -> Keyset:
    wrapped = _wrapped(keyset, master)
    name = keyset_note(keyset.environment)
    if agreed is None:
        await store.put_note(name, wrapped, before)
    else:
        await store.put_notes([AgreedNote.of(NoteWrite(name, wrapped, before), agreed)])
    return _same(keyset, Keyset.unwrap(await _stored(store, keyset.environment), master))


def _wrapped(keyset: Keyset, master: MasterKey) -> bytes:
    """The wrapped keyset, which opens. Raises as ``_same``."""
    wrapped = keyset.wrap(master)
    _same(keyset, Keyset.unwrap(wrapped, master))
    return wrapped


def _same(keyset: Keyset, read: Keyset) -> Keyset:
    """The keyset as read back. Raises ``VaultError(BAD_STORE)`` when it is another one."""
    if not read.same(keyset):
        raise VaultError(
            Code.BAD_STORE,
            "The wrapped keys do not read back as they were written: check the disk.",
        )
    return read


async def _stored(store: Store, environment: str) -> bytes:
    note = await store.note(keyset_note(environment))
    if note is None:
        raise VaultError(
            Code.BAD_KEYS,
            f"The keys of the environment {environment!r} are not in the store any more.",
        )
    return note
