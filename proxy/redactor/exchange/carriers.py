"""Answers with tokens outside the named places.

They stand in addresses and cookies (``carriers``), links of a page among them, in file names, and
anywhere in a successful body (``scan``).

An address shows a value only where that comes back as its token: in a parameter that a rule of the
application names, at the application itself, and only a value of this very exchange. Whatever else
stands in an address keeps its token, so no address bar and no log on the way shows it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

from msgspec.structs import replace

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.offload import SMALL, run_in_thread
from proxy.redactor.cookies import read_cookie, set_cookie
from proxy.redactor.exchange.answer_scan import AnswerScan
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.event_stream import CsvExchange, MessageExchange, StreamExchange
from proxy.redactor.exchange.list_answers import ListExchange
from proxy.redactor.exchange.mixins import complete, viewed
from proxy.redactor.exchange.request_tokens import cookie_token
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.json import tree as json_codec
from proxy.redactor.json.text import standard
from proxy.redactor.message import RawHeaders, Response, header
from proxy.redactor.pages import linked
from proxy.redactor.redact import ParsedBody
from proxy.redactor.restore import Edit, EscapingKinds, splice, surroundings
from proxy.redactor.routing import Router
from proxy.redactor.rules import Match, Stream, Verb
from proxy.redactor.search.sought import Searched
from proxy.redactor.select import Selection
from proxy.vault.vault import Vault

_ADDRESS: Final = re.compile(
    rb"([ \t]*(?:(?:https?:)?//([^/?#]*))?)(/[^#]*)?(.*)", re.DOTALL | re.IGNORECASE
)
_LINK: Final = re.compile(rb"(?<=<)[^<>]*(?=>)")
_REFRESH: Final = re.compile(rb"(?<=url=)[^\"']+|(?<=url=[\"'])[^\"']+", re.IGNORECASE)
#: The names of a file in a Content-Disposition (RFC 6266), plain and coded (RFC 8187).
_FILE: Final = re.compile(
    r";[ \t]*filename(?:[ \t]*=[ \t]*(\"(?:[^\"\\]|\\.)*+\"|[^;\"]*)"
    r"|\*[ \t]*=[ \t]*\"?(utf-8|iso-8859-1)'[^';]*'([^;\"]*)\"?)",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED: Final = re.compile(r'"|\\(.)', re.DOTALL)
#: Where addresses stand in these fields.
_ADDRESSES: Final = {
    b"location": re.compile(rb"(?s).+"),
    b"content-location": re.compile(rb"(?s).+"),
    b"link": _LINK,
    b"refresh": _REFRESH,
}
#: Characters that a file name must not contain.
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\"\\/]")


class Routes(Protocol):
    """The rules that an exchange belongs to."""

    @property
    def router(self) -> Router:
        """Router that finds the operation of an address."""

    @property
    def joined(self) -> Mapping[int, BoundOperation]:
        """Operations by their identity."""

    @property
    def vault(self) -> Vault:
        """Vault of the values."""


def special_exchange(joined: BoundOperation, match: Match, routes: Routes) -> RuleExchange:
    """The exchange of an operation whose answers show more than named objects."""
    rule = match.operation.response
    if rule.columns:
        return viewed(CsvExchange, joined)(joined, match, routes.vault)
    if rule.stream is not None:
        kind = MessageExchange if rule.stream is Stream.WEBSOCKET else StreamExchange
        return viewed(kind, joined)(joined, match, routes.vault)
    lists_all = rule.complete and match.operation.verb is Verb.READ
    usual = RuleExchange if joined.lists is None else ListExchange
    if not (rule.carriers or rule.carried or rule.scan):
        one = complete(usual) if lists_all else RuleExchange
        return viewed(one, joined)(joined, match, routes.vault)
    several = complete(CarrierExchange) if lists_all else CarrierExchange
    exchange = viewed(several, joined)(joined, match, routes.vault)
    exchange.routes = routes
    return exchange


class CarrierExchange(RuleExchange):
    """The exchange of an operation with ``response: {carriers: …}`` or ``{scan: true}``."""

    routes: Routes
    _answer: Response
    _scanned = False  #: whether stored values stand outside the named places

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        """As of any exchange; also where a field holds an address, whatever the body."""
        carriers = self._operation.response.carriers
        carried = status < 400 and any(name.lower() in carriers for name, _ in headers)
        return carried or super().must_buffer(status, headers)

    async def restore_response(self, answer: Response) -> Response:
        self._answer = answer
        restored = await super().restore_response(answer)
        if answer.status >= 400:
            return restored
        carriers = self._operation.response.carriers
        values = self._addressed()
        kind = surroundings(header(restored.headers, b"content-type"))
        if values and b"href" in carriers and restored.body and kind is EscapingKinds.HTML:
            links = partial(self._address, values=values)
            long = len(restored.body) > SMALL
            body = await run_in_thread(long, linked, restored.body, links)
            restored = replace(restored, body=body)
        fields = [
            (name, await self._field(name.lower(), value, values))
            if name.lower() in carriers
            else (name, value)
            for name, value in restored.headers
        ]
        return replace(restored, headers=tuple(fields))

    async def _values(self, body: ParsedBody, long: bool) -> list[list[Value | None]]:
        values = await super()._values(body, long)
        content = self._answer.body
        edits = [*self._links(content)]
        if self._operation.response.scan:
            spots = [(spot.start, spot.end) for item in body.items for spot in item.spots]
            taken = sorted([*spots, *((start, end) for start, end, _ in edits)])
            scan = AnswerScan(self._joined, self._request, self._writes, self._search)
            edits += await scan.edits(self._answer, self._keys(), self.began, taken)
            self._scanned = scan.revealed
        self._more = edits
        return values

    def _close(self, status: int = 0) -> None:
        self._shows = self._shows or self._scanned
        super()._close(status)

    def _addressed(self) -> Mapping[tuple[str, str], Value]:
        """By (field, token): the caller's own values of this exchange, in the clear."""
        values = dict(self._search.values) if self._search is not None else {}
        view = self._joined.view
        for one in self._writes:
            for name, several in one.tokens.items():
                if view is not None and view.covers(name):
                    continue
                values.update({(name, each.token): each.value for each in several})
        return values

    def _links(self, content: bytes) -> Iterator[Edit]:
        selection: Selection | None = self._plan.carried
        if selection is None:
            return
        content = standard(content) or content
        if content.lstrip()[:1] not in (b"{", b"["):
            return
        values = self._addressed()
        for leaf in selection.find(content, self._operation.endpoint.limits.json_depth).anchored:
            text = json_codec.read_json_value(content[leaf.start : leaf.end])
            if text is None or text.json:
                continue
            address = text.text.encode("utf-8", "surrogatepass")
            restored = self._address(address, values)
            if restored != address:
                value = Value(restored.decode("utf-8", "surrogatepass"))
                yield leaf.start, leaf.end, json_codec.write_json_value(value)

    async def _field(
        self, name: bytes, text: bytes, values: Mapping[tuple[str, str], Value]
    ) -> bytes:
        if name == b"set-cookie":
            return await self._cookie(text)
        pattern = _ADDRESSES.get(name)
        if pattern is not None:
            return pattern.sub(lambda one: self._address(one[0], values), text)
        return await self._file_name(text)

    def _address(self, address: bytes, values: Mapping[tuple[str, str], Value]) -> bytes:
        """An address with values in the parameters that come back as tokens."""
        if address[:1] == b"?" and self._request is not None:  # beside the address of this request
            base = self._request.target.partition(b"?")[0]
            return self._address(base + address, values)[len(base) :]
        before, authority, target, rest = _ADDRESS.fullmatch(address).groups()  # type: ignore[union-attr]  # it matches anything
        if target is None or not values or not self._is_own(authority):
            return address
        host = header(self._request.headers, b"host") if self._request is not None else b""
        try:
            match = self.routes.router.match("GET", (host or b"").decode("latin-1"), target)
            if not isinstance(match, Match):
                return address
            for one in match.operation.parts or (match.operation,):
                joined = self.routes.joined.get(id(one))
                if joined is not None and joined.collection is self._collection:
                    target = _with_values(joined, target, values)
            return b"%b%b%b" % (before, target, rest)
        except VaultError:
            return address

    def _is_own(self, authority: bytes | None) -> bool:
        """Whether an address leads to the application, or to the proxy in front of it."""
        if authority is None:
            return True
        host = header(self._request.headers, b"host") if self._request is not None else None
        upstream = urlsplit(self._operation.endpoint.upstream).netloc.encode()
        return authority.lower() in (upstream.lower(), (host or upstream).lower())

    async def _cookie(self, text: bytes) -> bytes:
        """A ``Set-Cookie`` with the value of its token, where that comes back as the same token."""
        name, before, raw, attributes = set_cookie(text)
        field = self._operation.response.cookies.get(name)
        token = read_cookie(raw) if field is not None else None
        if field is None or token is None or not token.text:
            return text
        scan = AnswerScan(self._joined, self._request, self._writes, self._search)
        body = Response(self._answer.status, _TEXT, token.text.encode())
        edits = await scan.edits(body, self._keys(), None)
        value = splice(body.body, edits).decode()
        try:
            if await cookie_token(self._collection, field, value) != token.text:
                return text
        except VaultError:
            return text
        return before + token.written(value) + attributes

    async def _file_name(self, text: bytes) -> bytes:
        """A ``Content-Disposition`` with values in the name of the file, under both its names."""
        line = text.decode("latin-1")
        names = list(_FILE.finditer(line))
        if not names:
            return text
        name = _name_of(max(names, key=lambda one: one[2] is not None))
        scan = AnswerScan(self._joined, self._request, self._writes, self._search)
        body = Response(self._answer.status, _TEXT, name.encode("utf-8", "replace"))
        edits = await scan.edits(body, self._keys(), None)
        if not edits:
            return text
        file = _UNFIT.sub("_", splice(body.body, edits).decode())
        ascii_name = file.encode("ascii", "replace").decode().replace("?", "_")
        both = f"; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(file, safe='')}"
        return _FILE.sub(lambda one: both if one.start() == names[0].start() else "", line).encode(
            "latin-1"
        )


def _name_of(one: re.Match[str]) -> str:
    written, charset, coded = one.groups()
    if charset:
        return unquote(coded.strip(), charset, "replace")
    raw = _QUOTED.sub(r"\1", written).strip().encode("latin-1")
    try:
        return raw.decode()  # as many applications write it, in place of the coded form
    except UnicodeDecodeError:
        return raw.decode("latin-1")


_TEXT: Final[RawHeaders] = ((b"content-type", b"text/plain"),)


def _with_values(
    joined: BoundOperation, target: bytes, values: Mapping[tuple[str, str], Value]
) -> bytes:
    """A target with the values of the tokens that a rule of searches finds in it."""
    if joined.searching is None:
        return target
    part = Searched(joined.searching.plan.address(target).values)
    return part.written(target, lambda one: values.get((one.field, one.value.text)))
