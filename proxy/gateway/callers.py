"""Admission of a request's caller, and its view by the proof of its roles.

A token stays in the request, for the application. An invalid one proves nothing: its caller sees
tokens, and the application judges it. If the issuer cannot be reached, the request is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from proxy.auth.external_issuer import (
    ByIntrospection,
    ByKeys,
    Expected,
    ForeignClaims,
    TokenReader,
    check_claims,
)
from proxy.clock import Clock, system_clock
from proxy.edge.firewall import Firewall, Mode, firewall_refusal
from proxy.edge.quotas import Quotas
from proxy.errors import Code, VaultError
from proxy.gateway.ports import ActiveRules
from proxy.net.hop_headers import authority
from proxy.net.outbound import IssuerClient, Outbound
from proxy.net.response import RequestContext
from proxy.net.tls import valid_until
from proxy.redactor.message import RawHeaders
from proxy.redactor.rules import Match, Operation, Position, Verb
from proxy.redactor.views import (
    OUTSIDE_VIEW,
    UNKNOWN_VIEW,
    CallerRule,
    CallerSource,
    View,
    outside_write,
    roles_in,
    view_of,
)

#: Ways of asking that are remembered: rule files come and go.
_MOST: Final = 100

_CERTIFICATE = CallerSource.CERTIFICATE  # looked up several times slower in it

_Roles = frozenset[str]

#: Raises ``VaultError`` once a stream must end: its caller does not prove the view any more that it
#: began with (UNAUTHORIZED, or ISSUER_UNREACHABLE where that cannot be told), or its rule is not
#: in force any more (OPERATION_DENIED).
Confirm = Callable[[], Awaitable[None]]


class _Ruled:
    """The rule of a stream, which may change while that lasts."""

    __slots__ = ("_edition", "_incoming", "_operation", "_rules")

    def __init__(
        self, incoming: RequestContext, operation: Operation, rules: ActiveRules, edition: object
    ) -> None:
        self._incoming, self._operation = incoming, operation
        self._rules, self._edition = rules, edition

    def confirm(self) -> None:
        """Raise ``VaultError`` unless the rules in force say of this request what they said."""
        edition = self._rules.edition
        if edition is self._edition:
            return
        incoming = self._incoming
        host = authority(incoming.target, incoming.head.host)
        _, rule = self._rules.match(incoming.head.method, host, incoming.target, incoming.raw)
        if not isinstance(rule, Match) or _meaning(rule.operation) != _meaning(self._operation):
            raise VaultError(
                Code.OPERATION_DENIED,
                f"The rule of {self._operation.label} has changed since the stream began: begin "
                "anew.",
            )
        self._edition = edition


def _meaning(operation: Operation) -> object:
    """The meaning of an operation, wherever it stands in its file."""
    endpoint = operation.endpoint
    views = [(one.name, one.who, one.levels) for one in endpoint.views]
    return replace(operation, endpoint=replace(endpoint, views=()), position=_NOWHERE), views


_NOWHERE: Final = Position("", 0, 0)


class _Credential(NamedTuple):
    """The token of a request, found once for all requests with the same fields."""

    rule: CallerRule
    reader: TokenReader[_Roles] | None  #: ``None``: nothing there can prove a role
    token: str


class _Certificate(NamedTuple):
    """The certificate of a caller, verified as its connection began."""

    content: Mapping[str, Any]
    ends: int  #: as instants of clocks are


class Admission:
    """Limits on callers: from where, how often. ``hearers`` are told of outsiders and refusals."""

    def __init__(
        self,
        firewall: Firewall | None,
        quotas: Quotas | None,
        hearers: tuple[Callable[[str], None], Callable[[str], None]],
    ) -> None:
        self._firewall, self._quotas = firewall, quotas
        self._screened, self._limited = hearers

    def holds_back(self, incoming: RequestContext) -> bool:
        """Whether ``admit`` has to look at the caller of a request before it is begun."""
        host = incoming.connection.client.host
        if self._firewall is not None and self._firewall.outside_raw(host, incoming.raw):
            return True
        quotas = self._quotas
        return quotas is not None and quotas.spent(quotas.host(host, incoming.raw))

    def count(self, incoming: RequestContext) -> None:
        """Count a request. Raises ``VaultError`` where its caller asks too often."""
        quotas = self._quotas
        if quotas is not None:
            host = quotas.host(incoming.connection.client.host, incoming.raw)
            quotas.caller(host, self._limited)

    def admit(self, incoming: RequestContext) -> bool:
        """Whether the caller is outside and sees nothing in clear.

        Raises ``VaultError`` where it gets no answer, or asks too often.
        """
        abroad = self._firewall is not None and self._is_abroad(incoming, self._firewall)
        self.count(incoming)
        return abroad

    def _is_abroad(self, incoming: RequestContext, firewall: Firewall) -> bool:
        if not firewall.outside_raw(incoming.connection.client.host, incoming.raw):
            return False
        if firewall.mode is Mode.BLOCK:
            self._screened("blocked")
            raise firewall_refusal()
        self._screened("masked")
        return True


class Callers:
    """Tells callers' views. ``outbound`` asks issuers; without it no token proves anything."""

    def __init__(self, outbound: Outbound | None = None, clock: Clock = system_clock) -> None:
        self._outbound = outbound
        self._clock = clock
        self._readers: dict[CallerRule, TokenReader[_Roles]] = {}
        self._certificates: WeakKeyDictionary[asyncio.BaseTransport, _Certificate] = (
            WeakKeyDictionary()
        )

    async def view(self, incoming: RequestContext, outside: bool = False) -> View:
        """Return the view of the caller of a matched request.

        Raises ``VaultError``: ISSUER_UNREACHABLE; OUTSIDE_COUNTRY for a write from there.
        """
        match, endpoint = incoming.match, incoming.endpoint
        if outside:
            if match is not None and match.operation.verb is not Verb.READ:
                raise outside_write()
            return OUTSIDE_VIEW
        view = self.cached_view(incoming)
        if view is not None or endpoint is None or endpoint.caller is None:
            return view or UNKNOWN_VIEW
        credential = self._credential(incoming, endpoint.caller)
        if credential.reader is None:
            return UNKNOWN_VIEW
        try:
            roles = await credential.reader.ask(credential.token)
        except VaultError as error:
            if error.code is not Code.UNAUTHORIZED:
                raise
            return UNKNOWN_VIEW
        return view_of(endpoint.views, roles)

    def confirming(
        self, incoming: RequestContext, view: View | None, rules: ActiveRules
    ) -> Confirm | None:
        """Return what confirms the answer of a matched request for as long as it lasts; ``None``:
        it is no stream.
        """
        match, route = incoming.match, incoming.head.route
        if match is None or not match.operation.response.in_parts:
            return None
        proven = view is not None and view is not UNKNOWN_VIEW and view is not OUTSIDE_VIEW
        edition = rules.edition if route is None else route.edition
        ruled = _Ruled(incoming, match.operation, rules, edition)
        return partial(self._confirm, incoming, view if proven else None, ruled)

    async def _confirm(self, incoming: RequestContext, view: View | None, ruled: "_Ruled") -> None:
        ruled.confirm()
        if view is None:
            return
        now = self.cached_view(incoming) or await self.view(incoming)
        if now is not view:
            raise VaultError(
                Code.UNAUTHORIZED,
                "The proof of the caller's roles has ended: begin anew with another.",
            )

    def bare(
        self,
        rules: ActiveRules,
        incoming: RequestContext,
        headers: Sequence[tuple[bytes, bytes]],
        outside: bool,
    ) -> Sequence[tuple[bytes, bytes]]:
        """The fields of a request, without values in the addresses that they hold unless its caller
        is known to see everything in the clear.
        """
        endpoint = incoming.endpoint
        if endpoint is None or not endpoint.searched or not (endpoint.viewed or outside):
            return headers
        view = None if outside else self.cached_view(incoming)
        if view is not None and view.whole:
            return headers
        return rules.bare_addresses(authority(incoming.target, incoming.head.host), headers)

    def cached_view(self, incoming: RequestContext) -> View | None:
        """The view of a caller inside the country; ``None``: an issuer has to be asked, or its
        refusal is remembered.
        """
        endpoint = incoming.endpoint
        rule = endpoint.caller if endpoint is not None else None
        if endpoint is None or rule is None:
            return UNKNOWN_VIEW
        if rule.source is _CERTIFICATE:
            return view_of(endpoint.views, self._certified(incoming, rule.part))
        credential = self._credential(incoming, rule)
        if credential.reader is None:
            return UNKNOWN_VIEW
        roles = credential.reader.remembered(credential.token)
        return None if roles is None else view_of(endpoint.views, roles)

    def _credential(self, incoming: RequestContext, rule: CallerRule) -> _Credential:
        common = incoming.head.common
        credential: _Credential | None = common.get(id(rule))
        if credential is None or credential.rule is not rule:
            token = authorization_token(incoming.raw)
            reader = None
            if token is not None and self._outbound is not None:
                reader = self._readers.get(rule)
                if reader is None:
                    reader = self._reader(rule, self._outbound)
            credential = common[id(rule)] = _Credential(rule, reader, token or "")
        return credential

    def _certified(self, incoming: RequestContext, part: tuple[str, str]) -> _Roles:
        """The roles in the certificate that the caller showed, verified, to the listener."""
        transport = incoming.connection.transport
        if transport is None:
            return frozenset()
        certificate = self._certificates.get(transport)
        if certificate is None:
            content = transport.get_extra_info("peercert") or {}
            certificate = _Certificate(content, valid_until(content))
            self._certificates[transport] = certificate
        if self._clock() >= certificate.ends:  # verified once, and the connection may last
            return frozenset()
        return certified_roles(certificate.content, part)

    def _reader(self, rule: CallerRule, outbound: Outbound) -> TokenReader[_Roles]:
        client = IssuerClient(outbound, rule.url, rule.credentials)
        issuer = (
            ByKeys(client.keys, self._clock, addressed=False)
            if rule.source is CallerSource.JWT
            else ByIntrospection(client.introspect, self._clock)
        )
        if len(self._readers) >= _MOST:
            self._readers.clear()
        read = partial(_roles, rule, _expected(rule), self._clock)
        reader = self._readers[rule] = TokenReader(issuer, read, self._clock)
        return reader


def _roles(
    rule: CallerRule, expected: Expected, clock: Clock, claims: ForeignClaims, until: int
) -> tuple[_Roles, int]:
    """The roles in the claims of a token, and until when they count."""
    end = check_claims(claims, expected, clock())
    return roles_in(claims, rule.roles), min(until, end)


def _expected(rule: CallerRule) -> Expected:
    """Return the claims that a token needs; any that the rule does not name is optional."""
    optional = [*(["iss"] if rule.issuer is None else []), *([] if rule.audience else ["aud"])]

    def addressed(named: Sequence[str]) -> bool:
        return not rule.audience or not rule.audience.isdisjoint(named)

    return Expected(rule.issuer, addressed, optional=frozenset(optional))


def authorization_token(headers: RawHeaders) -> str | None:
    """The token of the one Authorization field; ``None`` where there is none, or several."""
    fields = [
        value for name, value in headers if len(name) == 13 and name.lower() == b"authorization"
    ]
    if len(fields) != 1 or fields[0][:7].lower() != b"bearer ":
        return None
    return fields[0][7:].strip().decode("latin-1") or None


def certified_roles(certificate: Mapping[str, Any], part: tuple[str, str]) -> _Roles:
    """The roles in a part of a certificate, as Python's TLS tells it."""
    kind, name = part
    entries = certificate.get(kind, ())
    pairs = entries if kind == "subjectAltName" else [pair for one in entries for pair in one]
    return frozenset(text for key, text in pairs if key == name)
