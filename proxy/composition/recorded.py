"""The lines that a command leaves in the audit log, on a vault that no instance runs on.

The same log, the same chain: whoever holds the store alone may go on with it. A command says ``ready`` before it changes anything, and
``did`` right behind it; where no line can be written, nothing is changed.
"""

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proxy.audit.members import Event, body
from proxy.audit.memory import Memory
from proxy.audit.opening import open_trail
from proxy.audit.trail import Trail
from proxy.clock import system_clock
from proxy.composition.audit import chain_of, memory_of, options_of
from proxy.config import Settings
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.base import Store
from proxy.telemetry import logs

_log = logs.logger("audit")


class Record:
    """What one command changes. Made by the command, and of use while ``recorded`` is open.

    ``operation`` is named as the same operation of the interface; ``environment`` is the one in which it is done.
    """

    def __init__(self, operation: str, environment: str = "") -> None:
        self._about = {"via": "command", "by": _user(), "environment": environment, "operation": operation}
        self._at: tuple[Settings, Store, Keyset] | None = None
        self._open: tuple[Trail, Memory] | None = None

    async def ready(self) -> None:
        """Open the log, where it is not open. Raises ``VaultError``: NOT_WRITABLE, AUDIT_DOWN; nothing may be changed then."""
        if self._at is None:
            raise TypeError("no vault is open for this command")
        if self._open is None:
            settings, store, keyset = self._at
            memory = memory_of(store, keyset)
            trail = await open_trail(options_of(settings), chain_of(keyset), system_clock, memory)
            self._open = trail, memory
            await trail.begin(memory, _report)
        self._open[0].ready()

    def did(self, subject: str, environment: str = "") -> None:
        """Tell what was changed, by its id or name, and in which environment, where only that tells. Raises ``VaultError(AUDIT_DOWN)``, although it was."""
        if environment:
            self._about["environment"] = environment
        try:
            self._put(Event.ADMIN, subject=subject)
        except VaultError as error:
            text = "This was done, but the audit log has no line of it, for it could not be written: make room and see what there is now."
            raise VaultError(error.code, text) from None

    def refused(self, error: VaultError) -> None:
        """Tell that it came to nothing, or not to its end. No effect where the log is not open, or cannot be written."""
        if self._open is not None and error.code is not Code.AUDIT_DOWN:
            try:
                self._put(Event.REFUSED, code=str(error.code))
            except VaultError as down:
                _report(down)

    async def close(self) -> None:
        """The last line, remembered in the store. No effect where nothing was to be changed."""
        if self._open is not None:
            trail, memory = self._open
            self._open = None
            await trail.close(memory)

    def use(self, settings: Settings, store: Store, keyset: Keyset) -> None:
        """The vault is open, with the keyset of ``default``."""
        self._at = settings, store, keyset

    def _put(self, event: Event, **about: Any) -> None:
        if self._open is None:
            raise TypeError("the log is not open: say ready first")
        self._open[0].put(body(event, **self._about, **about))


@asynccontextmanager
async def recorded(record: Record | None) -> AsyncIterator[None]:
    """Whatever becomes of the block, the log of the command is closed behind it."""
    if record is None:
        yield
        return
    try:
        yield
    except VaultError as error:
        record.refused(error)
        raise
    finally:
        await record.close()


def _user() -> str:
    """The user of this machine, by name where there is one."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _report(error: VaultError) -> None:
    _log.error("the audit log could not be looked after and will be again", code=error.code, text=error.message)
