"""The store of the settings and the master key that belongs to it: opened together, or not at all."""

from proxy.clock import Clock, system_clock
from proxy.composition.interface import history
from proxy.config import Keys, Settings
from proxy.crypto.keyset import Keyset
from proxy.crypto.sources import KeySource, open_source
from proxy.errors import Code, VaultError
from proxy.model.environment import DEFAULT
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.storage.hooks import Hooks
from proxy.vault.environments import Environments
from proxy.vault.vault import VaultOptions, has_keyset, open_keyset


def key_source(keys: Keys) -> KeySource:
    """The key source that the settings name."""
    return open_source(keys.uri)


async def open_embedded(settings: Settings, hooks: Hooks | None = None) -> Store:
    """The store of the settings; the data folder and the file are made where they are missing."""
    return await open_store(f"{settings.store.engine}:///{settings.store.path}", hooks)


async def open_with_key(settings: Settings, hooks: Hooks | None = None) -> tuple[Store, bool]:
    """The open store, its master key being there; and whether one of them was made just now."""
    source = key_source(settings.keys)
    fresh = not settings.store.path.exists()
    if fresh and (source.exists() or settings.keys.source != "file"):
        source.load()  # a key that is no good, or that cannot be made here, is told before a store is made
    store = await open_embedded(settings, hooks)
    try:
        missing = not source.exists()
        if missing:
            await refuse_lost_key(settings, store)
            source.create()
    except BaseException:  # a stop, too: nobody else has it yet who could close it
        await store.close()
        raise
    return store, fresh or missing


def refuse_no_vault(settings: Settings) -> None:
    """Raise ``VaultError(BAD_STORE)`` where there is no vault yet."""
    if not settings.store.path.exists():
        raise VaultError(Code.BAD_STORE, f"There is no vault at {settings.store.path}: make one with `domicile init`.")


async def refuse_lost_key(settings: Settings, store: Store) -> None:
    """Raise ``VaultError(BAD_KEYS)`` where the store has a keyset already: its key was lost, and must not be replaced."""
    if await has_keyset(store, DEFAULT):
        raise VaultError(
            Code.BAD_KEYS,
            f"The key that opens {settings.store.path} is missing: restore {settings.keys.place} from its backup. "
            "A new key could not read what the vault holds, so none was made.",
        )


def vault_options(settings: Settings, environment: str = DEFAULT) -> VaultOptions:
    """What the settings say of the vault of an environment."""
    return VaultOptions(environment, settings.country.upper(), settings.pending.keep, history(settings))


def unobserved(_event: str, _schema: str, _count: int) -> None:
    """Nobody counts while things are being prepared."""


async def open_environments(
    settings: Settings, store: Store, clock: Clock = system_clock
) -> tuple[Environments, dict[str, Keyset]]:
    """The book of environments of an open store, and the keyset of each, ``default`` first; that one is made where it is missing."""
    source = key_source(settings.keys)
    root = await open_keyset(store, source, DEFAULT)
    book = Environments(store, root, source.load, clock)
    await book.load()
    others = [found.id for found in book.listed() if found.id != DEFAULT]
    return book, {DEFAULT: root, **{ident: await book.keyset(ident) for ident in others}}
