"""Other rules on their way into force, and what is told of it: in the audit log, and where they
protect less than those before, in the log and a metric.

A rule file that lost half of its operations by a mistake is in order, and nothing refuses it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from proxy.audit.events import LESS_PROTECTED, NEW_RULES, EventKind, encode_event
from proxy.audit.services import AuditServices
from proxy.redactor.exchange.runtime import Runtime, VaultRules
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics

_log = logs.logger("rules")

#: Lines of the log that tell a difference each; the first one has the number of all.
_MOST: Final = 20


class RuleChanges:
    """Brings new rules into force.

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
            from proxy.redactor.tools.difference import RuleEffect, differences

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
        return runtime
