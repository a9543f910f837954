"""A vault that no instance runs on, opened for a command: its clients, its environments, its
records.

A command that changes rights or keys gives its ``OfflineChanges``, which leaves lines in the audit
log. Such a change is also the first client of a vault, an administrator, by which all others are
made: ``domicile init`` prints it, or an orchestrator has made its id and secret and mounts them.

Everything here raises ``VaultError``: BAD_STORE where there is no vault, STORE_BUSY while an
instance runs on it, BAD_KEYS.
"""

import os
import pwd
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from proxy.audit import AuditLog
from proxy.audit.events import NOTE_CHANGED, EventKind, encode_event
from proxy.auth.authorization_server import open_clients
from proxy.auth.clients import Clients, Grant, NewClient
from proxy.auth.secret_checks import SecretChecks
from proxy.bootstrap.api import apart, read_secret
from proxy.bootstrap.audit import open_log_of
from proxy.bootstrap.open_vault import (
    key_source,
    open_environments,
    open_files,
    open_with_key,
    refuse_no_vault,
    unobserved,
    vault_options,
)
from proxy.clock import system_clock
from proxy.config import Settings
from proxy.config.settings import SecretSource
from proxy.crypto.keyset import Keyset
from proxy.errors import CannotOpen, Code, VaultError, bad_setting
from proxy.model.record import DEFAULT
from proxy.storage.base import Store
from proxy.storage.notes import ROOT
from proxy.telemetry import logs
from proxy.vault.attachments import Contents
from proxy.vault.environments import Environments, accept_notes, load_keyset, make_root, read_root
from proxy.vault.maintenance import scan_key_usage
from proxy.vault.vault import Vault, new_vault

# Audit lines of a command, on a vault that no instance runs on.
#
# The log and its chain are the same: the replica may continue it. A command calls
# ``ready`` before it changes anything, and ``did`` right after; if no line can be written, nothing
# is changed.

_log = logs.logger("audit")


class OfflineChanges:
    """Audit of the changes of one command. Made by the command, used while ``recorded`` is open.

    ``operation`` is named as the same operation of the interface; ``environment`` is the one in
    which it is done.
    """

    def __init__(self, operation: str = "", environment: str = "") -> None:
        self._about = {
            "via": "command",
            "by": current_user(),
            "environment": environment,
            "operation": operation,
        }
        self._at: tuple[Settings, Store, Keyset] | None = None
        self._log: AuditLog | None = None

    async def ready(self) -> None:
        """Open the log, where it is not open.

        Raises ``VaultError``: NOT_WRITABLE, AUDIT_DOWN; nothing may be changed then.
        """
        if self._at is None:
            raise TypeError("no vault is open for this command")
        if self._log is None:
            settings, store, keyset = self._at
            self._log, _ = await open_log_of(settings, store, keyset, system_clock)
            await self._log.begin()
            for name in sorted(store.root.faults) if store.root is not None else ():
                self._log.put(encode_event(EventKind.ALARM, subject=name, reason=NOTE_CHANGED))
        self._log.ready()

    def about(self, **members: str) -> None:
        """State the operation or the environment, where it was not known before."""
        self._about |= members

    def did(self, subject: str) -> None:
        """Record a change by its id or name.

        Raises ``VaultError(AUDIT_DOWN)``, although the change was made.
        """
        try:
            self._put(EventKind.ADMIN, subject=subject)
        except VaultError as error:
            text = (
                "This was done, but the audit log has no line of it, for it could not be "
                "written: make room and see what there is now."
            )
            raise VaultError(error.code, text) from None

    def refused(self, code: str) -> None:
        """Tell that it came to nothing, or not to its end.

        No effect where the log is not open, or cannot be written.
        """
        if self._log is not None and code != Code.AUDIT_DOWN:
            try:
                self._put(EventKind.REFUSED, code=code)
            except VaultError as down:
                _log.error("maintenance of the audit log failed and will be retried", fault=down)

    async def close(self) -> None:
        """The last line, remembered in the store. No effect where nothing was to be changed."""
        log, self._log = self._log, None
        if log is not None:
            await log.close()

    def use(self, settings: Settings, store: Store, keyset: Keyset) -> None:
        """The vault is open, with the keyset of ``default``."""
        self._at = settings, store, keyset

    @property
    def log(self) -> AuditLog:
        """The log, once it is open."""
        if self._log is None:
            raise TypeError("the log is not open: say ready first")
        return self._log

    def _put(self, event: EventKind, **about: Any) -> None:
        self.log.put(encode_event(event, **self._about, **about))


@asynccontextmanager
async def recorded(record: OfflineChanges | None) -> AsyncIterator[None]:
    """Close the log of the command after the block, whatever its outcome."""
    if record is None:
        yield
        return
    try:
        yield
    except VaultError as error:
        record.refused(str(error.code))
        raise
    finally:
        await record.close()


def current_user() -> str:
    """The user of this machine, by name where there is one."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


@asynccontextmanager
async def stopped_clients(
    settings: Settings, record: OfflineChanges | None = None
) -> AsyncIterator[Clients]:
    """The clients of all environments."""
    secret_checks = SecretChecks()
    try:
        async with open_offline(settings, record) as (store, _, keysets):
            yield await open_clients(
                store, keysets, secret_checks, system_clock, apart=apart(settings)
            )
    finally:
        secret_checks.close()


@asynccontextmanager
async def stopped_vaults(settings: Settings) -> AsyncIterator[list[tuple[Vault, Contents]]]:
    """Records and files of every environment, ``default`` first."""
    async with AsyncExitStack() as stack:
        store, _, keysets = await stack.enter_async_context(open_offline(settings))
        vaults = [
            new_vault(keyset, store, system_clock, unobserved, vault_options(settings, environment))
            for environment, keyset in keysets.items()
        ]
        contents = await open_files(settings, vaults[0], keysets.keys)
        stack.push_async_callback(contents.close)
        yield [
            (vaults[0], contents),
            *[(vault, await vault.share_files(contents)) for vault in vaults[1:]],
        ]


@asynccontextmanager
async def open_offline(
    settings: Settings, record: OfflineChanges | None = None
) -> AsyncIterator[tuple[Store, Environments, dict[str, Keyset]]]:
    """The store, the book of environments, and the keyset of each, ``default`` first.

    ``record``: the intended changes.
    """
    refuse_no_vault(settings)
    store, _ = await open_with_key(settings)
    try:
        book, keysets = await open_environments(settings, store)
        if record is not None:
            record.use(settings, store, keysets[DEFAULT])
        async with recorded(record):
            yield store, book, keysets
    finally:
        await store.close()


async def accept_stored_notes(settings: Settings, record: OfflineChanges) -> list[str]:
    """Accept the notes of the store as last written; return the names of the others.

    Raises as ``stopped``.
    """
    refuse_no_vault(settings)
    store, _ = await open_with_key(settings)
    try:
        master = key_source(settings.keys).load()
        keyset = await load_keyset(store, master, DEFAULT)
        try:
            await read_root(store, keyset)
            names = sorted(await store.check_notes())
        except CannotOpen:
            names = [ROOT]
        await accept_notes(store, keyset)
        record.use(settings, store, keyset)
        async with recorded(record):
            await record.ready()
            await make_root(store, master, keyset)
            for name in names:
                record.did(name)
    finally:
        await store.close()
    return names


async def sealed_with(settings: Settings) -> dict[str, dict[str, dict[str, int]]]:
    """Count what each data key has sealed: by environment, key id and kind.

    Raises as ``stopped``.

    Keys that the keyset does not have are counted, too.
    """
    async with stopped_vaults(settings) as vaults:
        return {
            vault.environment: {
                key: dict(kinds) for key, kinds in (await scan_key_usage(vault)).counted.items()
            }
            for vault, _ in vaults
        }


_access_log = logs.logger("access")

_SETTING: Final = "auth.first_client"
_NAME: Final = "first administrator"

#: Characters that need no escaping in forms, headers and paths.
_IDENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,63}")

#: Characters of a secret, and different ones among them: 32 random hexadecimal digits have fewer
#: than 8 once in 10^6, 32 letters and digits never.
_SHORTEST: Final = 32
_DIFFERENT: Final = 8


_unfit = partial(bad_setting, "The first client cannot be made of its files.", _SETTING)


async def first_client(settings: Settings) -> NewClient | None:
    """The first client of a vault, an administrator; ``None`` when there is a client already."""
    record = OfflineChanges("create_client", DEFAULT)
    async with stopped_clients(settings, record) as clients:
        if len(clients):
            return None
        await record.ready()
        client = await clients.create(_NAME, DEFAULT, Grant(admin=True))
        record.did(client.client.id)
        return client


async def admit_mounted(settings: Settings, clients: Clients, audit: AuditLog) -> None:
    """Make the client that the settings mount, where the vault has none yet; of no effect
    otherwise, whatever is mounted.

    Raises ``VaultError`` as ``mounted_client``, and AUDIT_DOWN: then there is none.
    """
    if settings.auth.first_client is None or len(clients):
        return
    ident, secret = mounted_client(settings.auth.first_client)
    about = {"via": "command", "by": current_user(), "environment": DEFAULT}
    audit.put(encode_event(EventKind.ADMIN, **about, operation="create_client", subject=ident))
    await clients.adopt(ident, secret, _NAME)
    _access_log.info("the first client was made of what the settings mount", client=ident)


def mounted_client(folder: Path) -> tuple[str, str]:
    """Id and secret of the client that is mounted there.

    Raises ``VaultError`` (BAD_SETTINGS) for files that cannot be read, an id that is none, and a
    secret that could be guessed.
    """
    ident, secret = (
        read_secret(SecretSource("file", str(folder / name)), _SETTING) for name in ("id", "secret")
    )
    if not _IDENT.fullmatch(ident):
        raise _unfit("the id has 3 to 64 letters, digits, dots, dashes and underscores")
    if len(secret) < _SHORTEST or len(set(secret)) < _DIFFERENT:
        raise _unfit(
            f"the secret could be guessed: {_SHORTEST} random characters or more are needed, such "
            "as `head -c 32 /dev/urandom | base64` makes"
        )
    return ident, secret
