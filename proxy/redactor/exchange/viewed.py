"""An exchange whose caller does not see every value: masks and tokens stand in the answer.

Writes are not affected. Searches need fields in the clear, for an answer reveals whether a value
exists.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from proxy.errors import Code, VaultError
from proxy.model.schema import NO_VALUE, Value
from proxy.offload import run_in_thread
from proxy.redactor.exchange.bound_operation import BoundOperation, hidden
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.redact import BodyObject, ParsedBody
from proxy.redactor.rules import Match, Verb
from proxy.redactor.views import outside_write
from proxy.tokenization.base import Resolution
from proxy.vault.vault import Vault

_SEARCHES = "Values kept inside the country cannot be searched from outside."


class ViewedExchange(RuleExchange):
    """Shows a view's visible values; ``viewed`` combines it with other kinds of exchange."""

    def __init__(self, joined: BoundOperation, match: Match, vault: Vault) -> None:
        super().__init__(joined, match, vault)
        if joined.view is None:
            raise TypeError("an exchange without a view shows everything")
        self._view = joined.view
        #: whether nothing stored can stand in an answer
        self._blind = self._view.hidden >= joined.plan.operation.entity.fields.keys()

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

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        """As of any exchange; that nothing is restored may be meant."""
        if not (self._blind and self._operation.verb is Verb.READ):
            super().pass_unread(status, headers)

    async def _values(self, body: ParsedBody, long: bool) -> list[list[Value | None]]:
        """Return the visible value of each place; where all are tokens by their form and stay such,
        the vault is not asked.
        """
        certain, items = self._is_certain, body.items
        if self._blind and all(
            certain(one.field, one.value) for item in items for one in item.spots
        ):
            return [[None] * len(item.spots) for item in items]
        rows = await super()._values(body, long)
        return await run_in_thread(long, self._visible, items, rows)

    def _is_certain(self, name: str, present: Value | None) -> bool:
        """Whether what stands in a place is a token for certain, or nothing."""
        if present is None or not present.text:
            return True
        tokenizer = self._collection.tokenizers[name]
        return tokenizer.resolution is Resolution.SEALED and tokenizer.resembles(present.text)

    def _visible(
        self, items: Sequence[BodyObject], rows: Sequence[Sequence[Value | None]]
    ) -> list[list[Value | None]]:
        """The values of all places as the view shows them.

        Another text in a place that is not shown clear may be a value from before there were rules:
        it is masked, and where the view has tokens nothing is shown.
        """
        return [
            [
                self._visible_at(spot.field, value, spot.value)
                for spot, value in zip(item.spots, row, strict=True)
            ]
            for item, row in zip(items, rows, strict=True)
        ]

    def _visible_at(self, name: str, value: Value | None, present: Value | None) -> Value | None:
        view = self._view
        if value is None and name in view.hidden:
            return None if self._is_certain(name, present) else NO_VALUE
        if value is None and name in view.masks and present is not None and present.text:
            value = present
        return None if value is None else view.visible(name, value)


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
