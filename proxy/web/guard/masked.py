"""What is left of a matched exchange for a caller outside: it may read, and sees what the application keeps, tokens and all.

It may neither write nor search by values: what an application says to a value that is or is not there already (a conflict,
one hit more) would tell of people whom the caller must not see.
"""

from proxy.errors import Code, VaultError
from proxy.redactor.message import Answer, RawHeaders, Request
from proxy.redactor.rules import Match, Verb
from proxy.web.ports import Exchange

_READS = "From outside the country, requests that a rule names may only read; what they read stays replaced by tokens."
_SEARCHES = "From outside the country nobody can search by a value that is kept inside."


def masked(match: Match, exchange: Exchange) -> Exchange:
    """The exchange of an operation for a caller outside. Raises ``VaultError`` (OUTSIDE_COUNTRY) where it would write."""
    if match.operation.verb is not Verb.READ:
        raise VaultError(Code.OUTSIDE_COUNTRY, _READS)
    return _Masked(exchange)


class _Masked:
    """An exchange whose answer passes as it comes."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def check_head(self, head: Request) -> None:
        self._exchange.check_head(head)

    async def outgoing(self, request: Request) -> Request:
        redacted = await self._exchange.outgoing(request)
        if redacted.target != request.target or redacted.body != request.body:
            await self._exchange.failed(False)
            raise VaultError(Code.OUTSIDE_COUNTRY, _SEARCHES)
        return redacted

    def wants(self, status: int, headers: RawHeaders) -> bool:  # noqa: ARG002  # the names of the port
        return False

    async def incoming(self, answer: Answer) -> Answer:
        """Nothing is wanted, so nothing comes here but what holds nothing."""
        await self._exchange.settled(answer.status, answer.headers)
        return answer

    async def settled(self, status: int, headers: RawHeaders) -> None:
        await self._exchange.settled(status, headers)

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        """That nothing is restored is meant."""

    async def failed(self, sent: bool) -> None:
        await self._exchange.failed(sent)
