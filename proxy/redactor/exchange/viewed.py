"""An exchange whose caller does not see every value: masks and tokens stand in the answer.

Writes are not affected. Searches need fields in the clear, for an answer reveals whether a value
exists.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.offload import run_in_thread
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.exchange.bound_operation import BoundOperation, hidden
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.redact import BodyObject, ParsedBody
from proxy.redactor.rules import Match, Verb
from proxy.redactor.views import FieldView, outside_write
from proxy.vault.vault import Vault

_SWITCHING = 101
_SEARCHES = "Values kept inside the country cannot be searched from outside."


class ViewedExchange(RuleExchange):
    """Shows a view's visible values; ``viewed`` combines it with other kinds of exchange."""

    def __init__(self, joined: BoundOperation, match: Match, vault: Vault) -> None:
        super().__init__(joined, match, vault)
        if joined.view is None:
            raise TypeError("an exchange without a view shows everything")
        self._view = joined.view
        nothing = self._view.hidden >= joined.plan.operation.entity.fields.keys()
        #: whether nothing stored can stand in an answer that settles nothing either
        self._passing = nothing and joined.plan.operation.verb is Verb.READ
        self._blind = nothing

    def check_head(self, head: Request) -> None:
        """As of any exchange; a caller from outside may only read."""
        self._refuse_write()
        super().check_head(head)

    def _refuse_write(self) -> None:
        if self._view.outside and self._operation.verb is not Verb.READ:
            raise outside_write()

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """As ``RuleExchange.redact_request``.

        Raises ``VaultError`` (FIELD_HIDDEN, OUTSIDE_COUNTRY) for a search by a hidden field.
        """
        self._refuse_write()
        redacted = await super().redact_request(request, marks)
        searched = self._search.values if self._search is not None else {}
        try:
            self._permit_search({name for name, _ in searched})
        except VaultError:
            await self.failed(False)
            raise
        return redacted

    def _permit_search(self, fields: Collection[str]) -> None:
        covered = sorted(filter(self._view.covers, fields))
        if covered and self._view.outside:
            raise VaultError(Code.OUTSIDE_COUNTRY, _SEARCHES)
        if covered:
            raise hidden(self._operation, covered)

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        """Whether the answer must be read whole; a read that shows nothing passes as it comes."""
        return not self._passing and super().must_buffer(status, headers)

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        """As in any exchange; a stream without visible values passes unchanged.

        Messages of a WebSocket do not, of which the caller's may hold values.
        """
        passing = self._passing and status != _SWITCHING
        return None if passing else await super().stream(status, headers)

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        """As of any exchange; that nothing is restored may be meant."""
        if not self._passing:
            super().pass_unread(status, headers)

    async def _values(self, body: ParsedBody, long: bool) -> list[list[Value | None]]:
        """Return the visible value of each place; without any, the vault is not asked."""
        if self._blind:
            return [[None] * len(item.spots) for item in body.items]
        rows = await super()._values(body, long)
        return await run_in_thread(long, _visible, self._view, body.items, rows)


#: Kinds of exchange with their viewed variants.
_KINDS: dict[type[RuleExchange], Any] = {RuleExchange: ViewedExchange}

_Kind = TypeVar("_Kind", bound=RuleExchange)


def viewed(kind: type[_Kind], joined: BoundOperation) -> type[_Kind]:
    """Return that kind of exchange as the view of an operation needs it."""
    if joined.view is None or joined.view.clear:
        return kind
    if kind not in _KINDS:
        _KINDS[kind] = type(f"Viewed{kind.__name__}", (ViewedExchange, kind), {})
    fitting: type[_Kind] = _KINDS[kind]
    return fitting


def _visible(
    view: FieldView, items: Sequence[BodyObject], rows: Sequence[Sequence[Value | None]]
) -> list[list[Value | None]]:
    """The values of all places as the view shows them.

    A foreign text in a masked place is masked as well: it may be a value from before there were
    rules.
    """
    visible: list[list[Value | None]] = []
    for item, row in zip(items, rows, strict=True):
        visible.append(
            [
                None
                if (one := _source(view, spot.field, value, spot.value)) is None
                else view.visible(spot.field, one)
                for spot, value in zip(item.spots, row, strict=True)
            ]
        )
    return visible


def _source(view: FieldView, name: str, value: Value | None, present: Value | None) -> Value | None:
    """The value to show: the restored one, or the application's own."""
    if value is None and name in view.masks and present is not None and present.text:
        return present
    return value
