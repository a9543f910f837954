"""The first client of a vault, an administrator, by which all others are made: ``domicile init``
prints it, or an orchestrator has made its id and its secret beforehand and mounts them.
"""

import re
from pathlib import Path
from typing import Final

from proxy.audit import AuditLog
from proxy.audit.events import EventKind, encode_event
from proxy.auth.clients import Clients, Grant, NewClient
from proxy.bootstrap.api import read_secret
from proxy.bootstrap.offline import OfflineChanges, current_user, stopped_clients
from proxy.config import Settings
from proxy.config.settings import SecretSource
from proxy.errors import Code, Detail, VaultError
from proxy.model.record import DEFAULT
from proxy.telemetry import logs

_log = logs.logger("access")

_SETTING: Final = "auth.first_client"
_NAME: Final = "first administrator"

#: Characters that need no escaping in forms, headers and paths.
_IDENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,63}")

#: Characters of a secret, and different ones among them: 32 random hexadecimal digits have fewer
#: than 8 once in 10^6, 32 letters and digits never.
_SHORTEST: Final = 32
_DIFFERENT: Final = 8


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
    _log.info("the first client was made of what the settings mount", client=ident)


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


def _unfit(text: str) -> VaultError:
    detail = Detail(_SETTING, text)
    return VaultError(Code.BAD_SETTINGS, "The first client cannot be made of its files.", (detail,))
