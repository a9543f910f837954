"""Where the contents of attachments are kept: the object store of the settings, joined to a vault."""

from collections.abc import Callable, Iterable

from proxy.config import Settings
from proxy.objectstore import open_objects
from proxy.storage.base import Store
from proxy.vault.belonging import check
from proxy.vault.contents import Contents
from proxy.vault.vault import Vault


async def open_files(
    settings: Settings, vault: Vault, environments: Callable[[], Iterable[str]] | None = None
) -> Contents:
    """The contents of the vault, which the caller closes. ``environments``: all that keep something in the same place.

    Raises ``VaultError``: NOT_WRITABLE, STORE_BUSY, BAD_STORE.
    """
    objects = await open_objects(settings.files.uri)
    try:
        return await vault.keep_files(objects, settings.limits.upload, environments)
    except BaseException:
        await objects.close()
        raise


async def check_files(settings: Settings, store: Store) -> None:
    """Raise what a start would say of the place of the files and of whose they are. Makes nothing."""
    if not settings.files.path.exists():
        await check(None, store)
        return
    objects = await open_objects(settings.files.uri)
    try:
        await check(objects, store)
    finally:
        await objects.close()
