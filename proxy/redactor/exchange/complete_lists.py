"""Lists of all records (``response: {complete: true}``): deletes in doubt of what they lack.

A rule claims that every caller is listed every record. What it cannot claim is that one answer is
that list, so all that tells of a page, a part, a choice or a copy from a cache is looked for, and
whatever is unclear decides nothing: an erased value does not come back.
"""

import re
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import msgspec

from proxy.model.schema import PathStep
from proxy.offload import SMALL, is_long, run_in_thread
from proxy.redactor.exchange.judgement import chooses_nothing
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.message import Media, RawHeaders, Response, classify
from proxy.redactor.redact import BodyObject
from proxy.vault.proxied import reconcile_absent

#: Names of header fields and members that tell of more records, of all of them, or of those that
#: one answer has at most.
_MORE: Final = re.compile(r"next|more|cursor|truncat|incomplete|partial", re.IGNORECASE)
_COUNT: Final = re.compile(r"total|count|found", re.IGNORECASE)
_MOST: Final = re.compile(r"size|limit|per.?page", re.IGNORECASE)
_NONE: Final = ("", "0", "false", "null", "none", "no")
#: Milliseconds that a clock of the application may be slow.
_SLOW: Final = 300_000

_Kind = TypeVar("_Kind", bound=RuleExchange)


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
        request = self._request
        if answer.status != 200 or request is None or self.joint is not None:
            return False
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


def complete(kind: type[_Kind]) -> type[_Kind]:
    """Return the kind of exchange that also settles deletes in doubt."""
    if kind not in _KINDS:
        _KINDS[kind] = type(f"Complete{kind.__name__}", (CompleteExchange, kind), {})
    fitting: type[_Kind] = _KINDS[kind]
    return fitting


_KINDS: dict[type[RuleExchange], Any] = {}


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
    for name, value in _texts(headers):
        if name == "date":
            try:
                return parsedate_to_datetime(value).timestamp() * 1000 > began - _SLOW
            except ValueError:
                return False
    return True


def _outside(node: Any, listed: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """All members of a document outside of the list."""
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
