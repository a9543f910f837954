"""Kinds of exchange whose answers show or mean something else; ``viewed`` and ``complete`` combine
them with any other kind.

A ``ViewedExchange`` is one whose caller does not see every value: masks and tokens stand in the
answer. Writes are not affected. Searches need fields in the clear, for an answer reveals whether a
value exists.

A ``CompleteExchange`` settles deletes in doubt by a list of all records (``response: {complete:
true}``). A rule claims that every caller is listed every record. What it cannot claim is that one
answer is that list, so all that tells of a page, a part, a choice or a copy from a cache is looked
for, and whatever is unclear decides nothing: an erased value does not come back.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import NO_VALUE, PathStep, Value
from proxy.offload import SMALL, is_long, run_in_thread
from proxy.redactor.exchange.bound_operation import BoundOperation, hidden
from proxy.redactor.exchange.judgement import chooses_nothing
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.message import (
    Media,
    RawHeaders,
    Request,
    Response,
    classify,
    header,
    http_seconds,
)
from proxy.redactor.redact import BodyObject, ParsedBody
from proxy.redactor.rules import Match, Verb
from proxy.redactor.views import outside_write
from proxy.tokenization.base import Resolution
from proxy.vault.proxied import reconcile_absent
from proxy.vault.vault import Vault

_UNSEEN = (
    "Nothing was done. The vault does not have this record yet, and you are not shown what the "
    "application has of {0}: leave {0} out, or have the record adopted first."
)
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

        Raises ``VaultError`` (FIELD_HIDDEN, OUTSIDE_COUNTRY) for a search by a hidden field, and
        (VALUE_UNFIT) for hidden fields that are emptied of a record that the vault does not have.
        """
        self._refuse_write()
        redacted = await super().redact_request(request, marks)
        searched = self._search.values if self._search is not None else {}
        try:
            self._permit_search({name for name, _ in searched})
            self._refuse_unseen()
        except VaultError:
            await self.failed(False)
            raise
        return redacted

    def _refuse_unseen(self) -> None:
        """Refuse to empty fields of a record that the vault does not have, and whose caller was
        shown nothing in their places: the application may have their values in the clear.
        """
        if self._operation.verb is not Verb.UPDATE:
            return
        unknown = [one.tokens.items() for one in self._writes if one.row is None]
        emptied = {name for tokens in unknown for name, values in tokens if not values}
        if unseen := sorted(emptied & self._view.hidden):
            details = tuple([Detail(name, "is empty, and not shown to you") for name in unseen])
            raise VaultError(Code.VALUE_UNFIT, _UNSEEN.format(", ".join(unseen)), details)

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


#: Names of header fields and members that tell of more records, of all of them, or of those that
#: one answer has at most.
_MORE: Final = re.compile(r"next|more|cursor|truncat|incomplete|partial", re.IGNORECASE)
_COUNT: Final = re.compile(r"total|count|found", re.IGNORECASE)
_MOST: Final = re.compile(r"size|limit|per.?page", re.IGNORECASE)
_NONE: Final = ("", "0", "false", "null", "none", "no")
#: Milliseconds that a clock of the application may be slow.
_SLOW: Final = 300_000


class CompleteExchange(RuleExchange):
    """Settles deletes in doubt by a list of all records; ``complete`` combines it with others."""

    async def restore_response(self, answer: Response) -> Response:
        """As of any exchange; what the answer lacks is decided when it is restored."""
        restored = await super().restore_response(answer)
        state = self._collection.state
        if (state.deletes or state.replicas is not None) and self._is_whole(answer):
            long = len(answer.body) > SMALL and is_long(answer.body)
            body = await self._read_answer(answer, long)
            items = body.items if body is not None else ()
            ids = await run_in_thread(long, self._listed, answer, items)
            if ids:
                await self._joined.decide(reconcile_absent(self._collection, ids, self.began))
        return restored

    def _is_whole(self, answer: Response) -> bool:
        """Whether request and heads tell of no part, no choice and no copy."""
        request, view = self._request, self._joined.view
        if answer.status != 200 or request is None or self.joint is not None:
            return False
        if view is not None and view.hidden >= self._operation.entity.fields.keys():
            return False  # who may see nothing, or has no proof, may be listed less
        asks = request.method == "GET" and not request.body
        return (
            asks
            and request.target == self._operation.template.encode()
            and chooses_nothing(request)
            and not any(_tells_part(name, value) for name, value in _texts(answer.headers))
            and _is_fresh(answer.headers, self.began)
        )

    def _listed(self, answer: Response, items: Sequence[BodyObject]) -> list[str]:
        """The ids of an answer that lists all records; empty where it might not."""
        ids = [item.id for item in items if item.id is not None]
        if classify(answer.headers, answer.body) is not Media.JSON:
            return []
        try:
            document = msgspec.json.decode(answer.body)
        except msgspec.DecodeError:
            return []
        rule = self._operation.response.body
        listed: Any = document
        for step in rule.objects or () if rule is not None else ():
            if step is not PathStep.EACH:
                listed = listed.get(step) if isinstance(listed, dict) else None
        if not isinstance(listed, list) or len(listed) != len(ids):
            return []
        texts = [*_outside(document, listed), *_texts(answer.headers)]
        return [] if any(_tells_more(name, value, len(ids)) for name, value in texts) else ids


def _texts(headers: RawHeaders) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        yield name.decode("latin-1").lower(), value.decode("latin-1").strip().lower()


def _tells_part(name: str, value: str) -> bool:
    """Whether a field of the answer tells of a further page, a range, or a copy from a cache."""
    if name in ("age", "warning", "content-range"):
        return True
    if name == "link":
        return "next" in value
    if "cache" in name and name != "cache-control":
        return "miss" not in value and "bypass" not in value
    return False


def _is_fresh(headers: RawHeaders, began: int) -> bool:
    """Whether the answer was made after its request, as far as it says when."""
    date = header(headers, b"date")
    seconds = http_seconds(date) if date is not None else None
    return date is None or (seconds is not None and seconds * 1000 > began - _SLOW)


def _outside(node: Any, listed: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one is listed:
            continue
        if isinstance(one, dict):
            yield from one.items()
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _tells_more(name: str, value: Any, count: int) -> bool:
    """Whether a member or a header field tells of further records, or of another number of them."""
    if _MORE.search(name):
        return bool(value) and str(value).lower() not in _NONE
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    if _COUNT.search(name):
        return number != count
    return _MOST.search(name) is not None and count >= number > 0


_Kind = TypeVar("_Kind", bound=RuleExchange)
_KINDS: dict[tuple[type[RuleExchange], type[RuleExchange]], Any] = {
    (ViewedExchange, RuleExchange): ViewedExchange
}


def viewed(kind: type[_Kind], joined: BoundOperation) -> type[_Kind]:
    """Return that kind of exchange as the view of an operation needs it."""
    if joined.view is None or joined.view.clear:
        return kind
    return _KINDS.get((ViewedExchange, kind)) or _combined(ViewedExchange, kind)


def complete(kind: type[_Kind]) -> type[_Kind]:
    """Return the kind of exchange that also settles deletes in doubt."""
    return _combined(CompleteExchange, kind)


def _combined(variant: type[RuleExchange], kind: type[_Kind]) -> type[_Kind]:
    if (variant, kind) not in _KINDS:
        name = variant.__name__.removesuffix("Exchange") + kind.__name__
        _KINDS[variant, kind] = type(name, (variant, kind), {})
    fitting: type[_Kind] = _KINDS[variant, kind]
    return fitting
