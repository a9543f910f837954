"""Opens the store of the settings together with its master key, or neither."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from proxy.audit import log_segments
from proxy.bootstrap.api import history_policy
from proxy.clock import Clock, system_clock
from proxy.config import KeySettings, Settings
from proxy.crypto.key_sources import KeySource, open_source
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, Detail, VaultError, bad_setting, coded
from proxy.model.record import DEFAULT
from proxy.objectstore import open_objects
from proxy.objectstore.base import ObjectStore
from proxy.storage import engine_of, open_store
from proxy.storage.base import Hooks, OpenStore, Store
from proxy.storage.transfer import INCOMING, MOVED
from proxy.telemetry import logs
from proxy.vault.attachments import Contents, belong_to_a_vault, check_pair
from proxy.vault.environments import (
    Environments,
    has_keyset,
    keyset_note,
    load_keyset,
    open_keyset,
    read_root,
)
from proxy.vault.vault import Vault, VaultOptions

_log = logs.logger("bootstrap")

#: Seconds for which an instance that has taken over a database waits for the folder of files.
_FILES_LEFT: Final = 10.0

#: The note of the store that says whose data it keeps.
_COUNTRY: Final = "country"
#: Default of the setting before a vault knew its country.
_EARLIER: Final = "se"

_NO_COUNTRY: Final = Detail(
    "country",
    "nothing says whose personal data this instance keeps: write country, such as country: se, "
    "or say domicile init --country se",
)


def key_source(keys: KeySettings) -> KeySource:
    """The key source that the settings name."""
    return open_source(keys.uri)


def has_vault(settings: Settings) -> bool:
    """Whether there is a vault already."""
    engine, location = engine_of(settings.store.uri)
    return engine.exists(location)


def peek_notes(settings: Settings) -> dict[str, bytes]:
    """Return the notes of the store, whoever owns it. Raises ``VaultError``."""
    engine, location = engine_of(settings.store.uri)
    return engine.peek(location)


def country_of(settings: Settings) -> str:
    """The country of an instance: that of the settings, else the one that its vault was made for.

    Raises ``VaultError`` (BAD_SETTINGS) where neither names one.
    """
    if settings.country:
        return settings.country
    if not has_vault(settings):
        _refuse_left(settings, _lines_left(settings))
        raise VaultError(
            Code.BAD_SETTINGS, "The settings have one fault: fix what is listed.", (_NO_COUNTRY,)
        )
    try:
        note = peek_notes(settings).get(_COUNTRY)
    except VaultError as error:
        text = f"The settings name no country, and that of the vault cannot be read: {error}"
        raise VaultError(Code.BAD_SETTINGS, text, (_NO_COUNTRY,)) from None
    if note is not None:
        return note.decode()
    _log.warning(
        "the vault does not say whose data it keeps, for an earlier version made it: it counts "
        "as that of Sweden, as it did then",
        source="country",
    )
    return _EARLIER


async def settle_country(settings: Settings, store: Store) -> None:
    """Keep the country of the settings with a vault that has none.

    Raises ``VaultError`` (BAD_SETTINGS) where it has another one.
    """
    note = await store.note(_COUNTRY)
    refuse_other_country(settings, note)
    if note is None:
        await store.put_note(_COUNTRY, settings.country.encode(), None)


def refuse_other_country(settings: Settings, note: bytes | None) -> None:
    """Raise ``VaultError`` (BAD_SETTINGS) if settings name another country than the vault has."""
    if note is None or settings.country in ("", note.decode()):
        return
    text = (
        f"the vault keeps the data of {note.decode()} and the settings say {settings.country}: "
        f"write country: {note.decode()}, or name another vault"
    )
    raise bad_setting("The vault is that of another country.", "country", text)


def look_beside(settings: Settings) -> str:
    """Look at a store that an instance runs on, without its lock: whose country it is, and whether
    the key opens it.

    Raises ``VaultError``; returns the omitted checks.
    """
    keyset = keyset_note(DEFAULT)
    notes = peek_notes(settings)
    refuse_other_country(settings, notes.get(_COUNTRY))
    if keyset in notes:
        Keyset.unwrap(notes[keyset], key_source(settings.keys).load())
    return "in use by a running instance: its country and its key fit, the rest was not looked at"


async def refuse_moving(settings: Settings, store: OpenStore) -> None:
    """Raise ``VaultError(BAD_STORE)`` for a vault that has moved elsewhere, or is not here yet."""
    notes = await store.read_notes((MOVED, INCOMING))
    if MOVED in notes:
        text = f"has moved to {notes[MOVED].decode()}: name that one in the setting store"
    elif INCOMING in notes:
        text = (
            f"is still being copied from {notes[INCOMING].decode()}: run that command to its end, "
            "or remove what is there and begin anew"
        )
    else:
        return
    raise VaultError(Code.BAD_STORE, f"The vault at {settings.store.label} {text}.")


async def open_with_key(
    settings: Settings, hooks: Hooks | None = None, *, begins: bool = False
) -> tuple[Store, bool]:
    """The open store, its master key being there; and whether one of them was made just now.

    ``hooks``: of an instance; a command has the store for itself, whatever the setting says.
    ``begins``: somebody asks for a new vault, for which a key may have been put there before.

    Raises ``VaultError`` (BAD_STORE) where the vault is lost (``refuse_lost_vault``).
    """
    if settings.remote.vault is not None:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"This instance has no vault: ask the one whose it uses ({settings.remote.vault}).",
        )
    settings = replace(settings, country=country_of(settings))
    source = key_source(settings.keys)
    fresh = not has_vault(settings)
    if fresh and (source.exists() or settings.keys.source != "file"):
        # an invalid key, or one that cannot be made here, is reported before a store is made
        source.load()
    if fresh:
        await refuse_lost_vault(settings, begins=begins)
    store = await open_store(settings.store.uri, hooks)
    try:
        await refuse_moving(settings, store)
        missing = not source.exists()
        if missing:
            await refuse_lost_key(settings, store)
        await settle_country(settings, store)
        if missing:
            _make_data(settings)
            source.create()
    except BaseException:  # also for a stop: no other owner could close it yet
        await store.close()
        raise
    return store, fresh or missing


def _make_data(settings: Settings) -> None:
    """Make the data folder, which an embedded store has made already."""
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise VaultError(
            Code.NOT_WRITABLE,
            f"The data folder {settings.data} cannot be made ({error.strerror}): make it, or name "
            "another one in the setting data.",
        ) from error


def refuse_no_vault(settings: Settings) -> None:
    """Raise ``VaultError(BAD_STORE)`` where there is no vault yet."""
    if not has_vault(settings):
        raise VaultError(
            Code.BAD_STORE,
            f"There is no vault at {settings.store.label}: make one with `domicile init`, or "
            "restore a backup with `domicile restore`.",
        )


async def refuse_lost_vault(settings: Settings, *, begins: bool = False) -> None:
    """Raise ``VaultError(BAD_STORE)`` where there is no vault, but what only one that ran leaves:
    its disk is not mounted, the settings name another place, or a restore is not over. Before that
    what no store can be made beside is refused, in the words of the engine.

    ``begins``: a key in the data folder alone is none of that.
    """
    engine, location = engine_of(settings.store.uri)
    if not has_vault(settings):
        engine.refuse_new(location)  # which names more
    left, keys = _lines_left(settings), settings.keys
    source = key_source(keys)
    if keys.source == "file" and source.exists():
        in_data = Path(keys.locator).is_relative_to(settings.data)  # a start makes the vault first
        if (in_data and not begins) or source.load().others:
            left.append(f"its key at {keys.locator}")
    if settings.files.folder is None or settings.files.folder.is_dir():
        objects = await open_objects(settings.files.uri, own=False)
        try:
            if await belong_to_a_vault(objects):
                left.append(f"its attachments at {settings.files.label}")
        finally:
            await objects.close()
    _refuse_left(settings, left)


def _lines_left(settings: Settings) -> list[str]:
    """Describe the audit log of a vault, if there is one."""
    there = any(map(log_segments, settings.chain_folders()))
    return [f"its audit log at {settings.audit.folder}"] if there else []


def _refuse_left(settings: Settings, left: Sequence[str]) -> None:
    # another process may have made the vault while this one looked
    if left and not has_vault(settings):
        raise VaultError(
            Code.BAD_STORE,
            f"There is no vault at {settings.store.label}, but one was in use here, and has left "
            f"{', '.join(left)}: mount its disk, correct the setting `store`, or restore a backup "
            "with `domicile restore`. A new vault could not resolve the tokens that the "
            "application holds, so none was made. To begin anew, move away what is left, or name "
            "another place for it, and make a vault with `domicile init`.",
        )


async def refuse_lost_key(settings: Settings, store: Store) -> None:
    """Raise ``VaultError(BAD_KEYS)`` if the store has a keyset: its key is lost, not to replace."""
    if await has_keyset(store, DEFAULT):
        raise VaultError(
            Code.BAD_KEYS,
            f"The key that opens {settings.store.label} is missing: restore "
            f"{settings.keys.locator} from its backup. "
            "A new key could not read what the vault holds, so none was made.",
        )


def vault_options(settings: Settings, environment: str = DEFAULT) -> VaultOptions:
    """Return the options of the vault of an environment."""
    return VaultOptions(
        environment,
        country_of(settings).upper(),
        settings.pending.keep,
        history_policy(settings),
        settings.history.detect_rollback
        if settings.history.detect_rollback is not None
        else settings.store.file is not None,
        settings.limits.opened,
    )


def unobserved(_event: str, _schema: str, _count: int) -> None:
    """Nobody counts while things are being prepared."""


async def open_environments(
    settings: Settings, store: Store, clock: Clock = system_clock
) -> tuple[Environments, dict[str, Keyset]]:
    """The book of environments of an open store, and the keyset of each, ``default`` first; that
    one is made where it is missing.
    """
    source = key_source(settings.keys)
    root = await open_keyset(store, source, DEFAULT)
    await store.note(_COUNTRY)  # it was read before there was a key to compare it with
    book = Environments(store, root, source.load, clock)
    await book.load()
    others = [environment.id for environment in book.listed() if environment.id != DEFAULT]
    return book, {DEFAULT: root, **{ident: await book.keyset(ident) for ident in others}}


# Where the contents of attachments are kept: the object store of the settings, joined to a vault.


async def open_files(
    settings: Settings, vault: Vault, environments: Callable[[], Iterable[str]] | None = None
) -> Contents:
    """The contents of the vault, which the caller closes.

    ``environments``: all that keep something in the same place.

    Where the vault is in a database, an instance that has just lost it may still use the files: it
    ends within seconds. Raises ``VaultError``: NOT_WRITABLE, STORE_BUSY, BAD_STORE.
    """
    objects = await _files_left(settings, shared=vault.store.replicas is not None)
    try:
        return await vault.keep_files(objects, settings.limits.upload, environments)
    except BaseException:
        await objects.close()
        raise


async def _files_left(settings: Settings, *, shared: bool) -> ObjectStore:
    """Return the object store, once no other process uses it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + (_FILES_LEFT if settings.store.file is None else 0)
    while True:
        try:
            return await open_objects(settings.files.uri, shared=shared)
        except VaultError as error:
            if error.code is not Code.STORE_BUSY or loop.time() >= until:
                raise
        await asyncio.sleep(0.05)


async def check_file_store(settings: Settings, store: Store) -> None:
    """Raise as a start would for the place of the files and its owner. Makes nothing."""
    folder = settings.files.folder
    if folder is not None and not folder.exists():
        await check_pair(None, store)
        return
    objects = await open_objects(settings.files.uri)
    try:
        await check_pair(objects, store)
    finally:
        await objects.close()


def check_keys(settings: Settings) -> None:
    """Raise as a start would for the key; only the first start makes a missing key file."""
    source = key_source(settings.keys)
    if source.exists() or settings.keys.source != "file" or has_vault(settings):
        source.load()


def check_store(settings: Settings) -> str:
    """Raise as a start would for store and key; return the omitted checks. Makes nothing."""
    if has_vault(settings):
        return asyncio.run(_check_store(settings))
    country_of(settings)
    asyncio.run(refuse_lost_vault(settings))
    if settings.files.folder is None:
        asyncio.run(_look_at_files(settings))
    return "made at the first start"


async def _look_at_files(settings: Settings) -> None:
    """Ask the object store whether the bucket is there and opens."""
    objects = await open_objects(settings.files.uri)
    try:
        await objects.owner()
    finally:
        await objects.close()


async def _check_store(settings: Settings) -> str:
    source = key_source(settings.keys)
    try:
        store = await open_store(settings.store.uri)
    except coded(Code.STORE_BUSY):
        return look_beside(settings)
    try:
        await refuse_moving(settings, store)
        refuse_other_country(settings, await store.note("country"))
        if not source.exists():
            await refuse_lost_key(settings, store)
        elif await has_keyset(store, DEFAULT):
            await read_root(store, await load_keyset(store, source.load(), DEFAULT))
            for name in await store.check_notes():
                await store.note(name)  # raises as a start would
        await check_file_store(settings, store)
    finally:
        await store.close()
    return ""
