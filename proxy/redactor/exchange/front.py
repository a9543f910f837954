"""The front's side of exchanges whose vault another process owns (``owner_protocol``): rules and
router are here, what needs the vault is asked for.

While the owner is away, writes are refused and reads go as ``on_error`` of their rule says. An
exchange belongs to one connection: where that breaks, the owner leaves it in doubt.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from proxy.clock import Clock
from proxy.errors import Code, VaultError
from proxy.redactor.cookies import no_token, with_tokens
from proxy.redactor.exchange.fast_path_exchange import answers_plainly, writes_plainly
from proxy.redactor.exchange.front_exchange import FrontExchange, FrontRuntime
from proxy.redactor.exchange.front_fast_path import FrontReadPlan, FrontWritePlan
from proxy.redactor.exchange.front_link import Connect, FrontLink
from proxy.redactor.exchange.matcher import (
    CurrentRules,
    carries,
    cookies_in,
    has_one_answer,
    holds_address,
    is_plain_operation,
)
from proxy.redactor.exchange.owner_protocol import (
    GROWTH,
    ROOM,
    HeadersRedacted,
    RedactHeaders,
    longest_body,
    views_of,
)
from proxy.redactor.message import RawHeaders, is_patch
from proxy.redactor.rules import Endpoint, Match, RuleSet, Verb
from proxy.redactor.views import View


class FrontRules(CurrentRules[FrontRuntime]):
    """The rules in force before the vault of another process.

    ``connect`` opens a connection to the owner; ``patience`` as of ``FrontLink``; ``clock``: of
    this process and of the owner, where they have one.
    """

    def __init__(self, connect: Connect, patience: float, clock: Clock | None = None) -> None:
        super().__init__(FrontRuntime(RuleSet("none", (), (), ())))
        self._clock = clock
        self.link = FrontLink(connect, patience, lambda: self.runtime.rules.version)

    def begin(self, rules: RuleSet) -> None:
        self._make_room(rules)
        self.runtime = FrontRuntime(rules)

    async def adopt(self, rules: RuleSet) -> FrontRuntime:
        """Return rules ready to take effect. Raises ``VaultError``: the owner has others."""
        self._make_room(rules)
        if not await self.link.follows(rules.version):
            raise VaultError(
                Code.VAULT_DOWN,
                "The owner of the vault has other rules: give both the same files.",
            )
        return FrontRuntime(rules)

    def _make_room(self, rules: RuleSet) -> None:
        self.link.allow(ROOM + GROWTH * longest_body(rules))

    async def check(self) -> str | None:
        """For ``/readyz``: why requests that rules name cannot be carried out."""
        if self.link.fault is not None:
            return self.link.fault
        try:
            if await self.link.knows(self.runtime.rules.version):
                return None
        except VaultError as error:
            return error.message
        return "The owner of the vault has other rules: give both the same files."

    async def redact_headers(
        self, endpoint: Endpoint, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        """The fields with tokens in place of the values in addresses that they hold, and in cookies
        that the rules name; without the owner, these are left out.
        """
        runtime, cookies = self.runtime, cookies_in(endpoint, headers)
        if not cookies and not (endpoint.searched and carries(headers, runtime.sign)):
            return headers
        try:
            channel = await self.link.channel()
            version, fields = runtime.rules.version, tuple(headers)
            question = RedactHeaders(channel.number(), version, host, fields, endpoint.name)
            answer = cast("HeadersRedacted", await channel.ask(question))
            if answer.fault is not None:
                raise answer.fault.error()
        except VaultError:
            left = [one for one in headers if not holds_address(*one, runtime.sign)]
            return await with_tokens(endpoint.cookies, left, no_token) if cookies else left
        return answer.headers

    def fast_path(
        self, match: Match, headers: RawHeaders, view: View | None = None
    ) -> FrontReadPlan | FrontWritePlan | None:
        """Plan of its ordinary exchanges, if any: writes, and where the owner has the same clock
        reads.
        """
        runtime, endpoint = cast("FrontRuntime", match.scope), match.operation.endpoint
        if (endpoint.searched and carries(headers, runtime.sign)) or cookies_in(endpoint, headers):
            return None
        if match.operation.verb is not Verb.READ and is_patch(headers):
            return None
        key = runtime.numbers[id(match.operation)], view
        if key not in runtime.fast_path:
            runtime.fast_path[key] = self._plan(runtime, *key)
        return runtime.fast_path[key]

    def _plan(
        self, runtime: FrontRuntime, number: int, view: View | None
    ) -> FrontReadPlan | FrontWritePlan | None:
        operation, clock = runtime.operations[number], self._clock
        visible = view.shows(operation.entity.name) if view else not operation.endpoint.views
        if not (visible and is_plain_operation(operation)):
            return None
        plan, views = runtime.plan(number), views_of(operation.endpoint)
        scope = runtime.rules.version, number, views.index(view)
        if not answers_plainly(plan):
            return None
        if operation.verb is Verb.READ:
            if clock is None or not has_one_answer(operation):
                return None
            return FrontReadPlan(plan, scope, self.link, clock, partial(self._further, view))
        if not writes_plainly(plan):
            return None
        return FrontWritePlan(plan, scope, self.link, view, partial(self._further, view))

    def _further(self, view: View | None, match: Match, *begun: Any) -> FrontExchange:
        exchange = self.exchange(match, view)
        exchange.resume(*begun)
        return exchange

    def exchange(self, match: Match, view: View | None = None) -> FrontExchange:
        return FrontExchange(self.link, match, view, self._clock)
