"""Hot reload of the rule files: a valid new rule set becomes active, else the old one stays."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from proxy.audit.events import LESS_PROTECTED, NEW_RULES, EventKind, encode_event
from proxy.audit.services import AuditServices
from proxy.errors import Code, VaultError
from proxy.redactor.exchange.runtime import Runtime, VaultRules
from proxy.redactor.json.native import find_leaves, unusable
from proxy.redactor.load import fingerprint
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import FileWatcher, Reload

_log = logs.logger("rules")

#: Seconds between two looks, of which two have to agree; the promise is "within a second".
_LOOK = 0.25
#: Seconds until files that are in order are tried again, after the vault could not take them.
_AGAIN = 5.0
#: Lines of the log that tell a difference each; the first one has the number of all.
_MOST = 20


class InUse(Protocol):
    """Holder of the rules in force; ``adopt`` gives what takes their place."""

    runtime: Any


class RuleFiles(FileWatcher):
    """The files at a path. Make it before they are read first: a start can take long, and what
    changes meanwhile is to be read again.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(partial(fingerprint, path), settled=True)  # `cp` empties a file first
        self.path = path


class Reloader:
    """Reloads rules when their files change or on SIGHUP."""

    def __init__(
        self,
        files: RuleFiles,
        read: Callable[[], RuleSet],
        adopt: Callable[[RuleSet], Awaitable[Any]],
        in_force: InUse,
        metrics: Metrics,
    ) -> None:
        self._files = files
        self._read = read
        self._adopt = adopt
        self._in_force = in_force
        self.state = Reload(metrics, "rules")
        self._refused: float | None = None  #: when the vault could not take files in order
        self._loading = asyncio.Lock()
        self._failures = metrics.cell("domicile_rules_reload_failures_total")
        self._success = metrics.cell("domicile_rules_reload_success_timestamp_seconds")
        self._success.value = time.time()
        self._metrics = metrics
        metrics.cell("domicile_native_code").value = find_leaves is not None
        if unusable:
            _log.warning(
                "the native code cannot be used, the Python code does the work; compile it again "
                "with `make native`",
                reason=unusable,
            )
        metrics.info("domicile_rules_info", in_force.runtime.rules.version)

    async def watch(self, every: float = _LOOK, again: float = _AGAIN) -> None:
        """Look for changes every so many seconds for ever; ``again``: seconds until the same files
        are tried once more.
        """
        await self._files.run(
            every,
            self.reload,
            lambda: self._refused is not None and time.monotonic() - self._refused >= again,
        )

    async def reload(self) -> bool:
        """Reload everything; return whether it became active.

        A fault is logged and counted, and changes nothing else.
        """
        async with self._loading:  # the last reload wins
            return await self._reload()

    async def _reload(self) -> bool:
        self._refused = None
        try:
            rules = await asyncio.to_thread(self._read)
            if self._in_force.runtime.rules.files and not rules.files:  # all would pass unread
                raise VaultError(
                    Code.BAD_RULES,
                    f"There is no rule file any more at {self._files.path}: put the files "
                    "back, or restart.",
                )
            runtime = await self._adopt(rules)
        except VaultError as error:
            self._refuse(error)
            return False
        changed = rules.version != self._in_force.runtime.rules.version
        self._in_force.runtime = runtime
        self.state.succeeded()
        self._success.value = time.time()
        self._metrics.info("domicile_rules_info", rules.version)
        if changed:
            _log.info("rules are active", version=rules.version, count=len(rules.operations))
        else:
            _log.info("rules reloaded without changes", version=rules.version)
        return True

    def _refuse(self, error: VaultError) -> None:
        self._failures.value += 1
        if error.code is not Code.BAD_RULES:
            self._refused = time.monotonic()
        self.state.rejected(
            _log,
            error,
            "rules rejected; previous rules stay active",
            "a fault in the rules",
        )


class RuleChanges:
    """Brings new rules into force, and tells of it: in the audit log, and where they protect less
    than those before, in the log and a metric. A file that lost half of its operations by a mistake
    is in order, and nothing refuses it.

    ``bind`` makes them ready to take effect, ``observers`` are told of them.
    """

    def __init__(
        self,
        bind: Callable[[RuleSet], Awaitable[Runtime]],
        observers: Sequence[Callable[[RuleSet], None]],
        in_force: VaultRules,
        audit: AuditServices,
        metrics: Metrics,
    ) -> None:
        self._bind, self._observers = bind, observers
        self._in_force, self._audit = in_force, audit
        self._lost = metrics.cell("domicile_rules_lost_protection")

    async def adopt(self, fresh: RuleSet) -> Runtime:
        """New rules, ready to take effect; all is told of them. Raises as ``bind``."""
        runtime = await self._bind(fresh)
        for tell in self._observers:
            tell(fresh)
        before = self._in_force.runtime.rules
        if fresh.version != before.version:
            # loads what rules that stay the same never need
            from proxy.redactor.tools.difference import CALLED, RuleEffect, differences

            changes = await asyncio.to_thread(differences, before, fresh)
            lost = [one for one in changes if one.effect is RuleEffect.LOSES]
            self._lost.value = len(lost)
            reason = f"{NEW_RULES}; {LESS_PROTECTED}: {len(lost)}" if lost else NEW_RULES
            self._audit.put_quietly(
                encode_event(EventKind.LOG, subject=fresh.version, reason=reason)
            )
            if lost:
                _log.warning(
                    "the new rules protect less than those before",
                    version=fresh.version,
                    count=len(lost),
                )
            for one in lost[:_MOST]:
                _log.warning(
                    "by the new rules a value loses protection", source=one.subject, text=one.text
                )
            for one in [one for one in changes if one.text.startswith(CALLED)][:_MOST]:
                _log.warning("the new rules give another name", source=one.subject, text=one.text)
        return runtime
