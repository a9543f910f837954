"""Rules and their router: what a request is for, whoever carries it out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar, cast
from urllib.parse import unquote_to_bytes, urlsplit

from proxy.errors import Code, VaultError
from proxy.redactor.forks import Fork, each_operation, forked
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.method_override import TELLING, TELLS_ADDRESS, TELLS_METHOD, named_method
from proxy.redactor.path import paths_in_query, script_of
from proxy.redactor.routing import Router
from proxy.redactor.rules import (
    Endpoint,
    IdSource,
    Match,
    Operation,
    PassRule,
    Restore,
    Rule,
    RuleSet,
    Verb,
)
from proxy.redactor.search.sought import searches_any

# Addresses in header fields: a browser tells every picture and script of a page which search led to
# it.
#
# So the values of a search come once more: in ``Referer``, in fields of proxies before this one,
# and in those of page libraries (``HX-Current-URL``, ``X-Up-Location``, ``Next-Url``). What a rule
# swaps in a target is swapped in those as well.
#
# A client of Next.js before 15.4 tells with each request the whole state of its page, its search
# and the parts of its path among it, in JSON that is percent-encoded: ``Next-Router-State-Tree``.
# Without it the application answers with the whole page, so it does not leave where it may hold
# values.


#: Fields that hold the address of a request, in lower case, whatever they look like.
CARRIERS: Final = frozenset(
    {b"referer", b"x-original-url", b"x-rewrite-url", b"x-original-uri", b"x-forwarded-uri"}
)

#: An absolute or relative address: what stands before its path, its authority, path and query, and
#: the fragment.
ADDRESS: Final = re.compile(
    rb"(\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://([^/?#]*))?)([^#]*)(#.*)?", re.DOTALL
)


#: A whole value that looks like an address: with a scheme, or a relative one, be it in quotes.
_ADDRESS_LIKE: Final = re.compile(rb'\s*(?:[A-Za-z][A-Za-z0-9+.-]*:[/\\]|"?/|"?[^\s?#:,;="]+\?)')
#: What stands before the first name of the path of a relative address.
BEFORE_PATH: Final = re.compile(rb'"?(?:\.{0,2}/)*')


#: The field with the state of a page.
_PAGE_STATE: Final = b"next-router-state-tree"


def holds_state(name: bytes, value: bytes, sign: bytes) -> bool:
    """Whether a field holds the state of a page, with the sign of an address that holds values."""
    return name.lower() == _PAGE_STATE and (sign != b"?" or b"?" in unquote_to_bytes(value))


def holds_address(name: bytes, value: bytes, sign: bytes = b"?") -> bool:
    """Whether a field may hold the address of a request with this sign in it, or such a state."""
    if len(name) == len(_PAGE_STATE) and holds_state(name, value, sign):
        return True
    if not (sign in value or b"?" in value):
        return False
    return name.lower() in CARRIERS or _ADDRESS_LIKE.match(value) is not None


def carries(headers: Sequence[tuple[bytes, bytes]], sign: bytes = b"?") -> bool:
    """Whether any field may hold such an address: nearly always not."""
    return any(
        (sign in value or b"?" in value or len(name) == len(_PAGE_STATE))
        and holds_address(name, value, sign)
        for name, value in headers
    )


def cookies_in(endpoint: Endpoint, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether any field may hold a cookie that the rules of the endpoint name."""
    return bool(endpoint.cookies) and any(
        name.lower() == b"cookie" and endpoint.may_hold_cookies(value) for name, value in headers
    )


_NO_ENDPOINT = "No endpoint of the rule files serves this host and path."
_PATH_IN_QUERY = "The query names a path that a rule protects: send the path itself."
_NAMED_ELSEWHERE = (
    "A rule of another endpoint before the same application names this request, and none of this "
    "endpoint. Write an operation for it in the file of this one, with 'pass: true' where it is "
    "not the same thing."
)
_NO_RULES = (
    "This proxy has no rules and so serves no application: name a rule file with the setting rules."
)


#: The head of a request: method, host, target, and the method that a header or its body names.
_RequestHead = tuple[str, str, bytes, str | None]


class CarriedAddress(NamedTuple):
    """The address of a request in a field, as far as it may hold values."""

    before: bytes  #: as it stands there
    target: bytes
    added: int  #: signs of the target that do not stand there
    rule: Operation | None  #: ``None``: it cannot be told which

    @property
    def bare(self) -> bytes:
        """The address without all that may be a value."""
        search = self.rule.request.search if self.rule is not None else None
        path = self.target.partition(b"?")[0]
        return self.before + (b"/" if search is not None and search.path else path)[self.added :]


@dataclass(frozen=True, slots=True)
class Matcher:
    """Compiled rules with their router. ``matcher_parts`` makes what it takes."""

    rules: RuleSet
    router: Router
    sign: bytes  #: what stands in each address that holds values
    forks: Mapping[int, Fork]  #: by identity of the trunk
    #: what requests are for, in the same order wherever the same rules are read
    operations: tuple[Operation, ...]
    methods: tuple[str, ...]  #: of requests whose address holds values, GET first
    #: by endpoint, the rules of others before the same application, whatever host and prefix
    shared: Mapping[str, Sequence[Router]]
    scripts: bool  #: whether an operation has the path of a program of PHP

    def match(
        self,
        method: str,
        host: str,
        target: bytes,
        headers: RawHeaders,
        override: str | None = None,
    ) -> tuple[Endpoint, Match | PassRule | None]:
        telling: list[tuple[bytes, bytes]] = []
        for field in headers:  # no comprehension: it is one more call with every request
            if TELLING[field[0]]:
                telling.append(field)  # noqa: PERF401  # saves a call
        overrides: list[bytes] = [override.encode()] if override else []
        if telling:
            overrides += [value for name, value in telling if TELLING[name] == TELLS_METHOD]
        named = named_method(overrides) if overrides else None
        hit = self.router.match(method, host, target, named)
        if self.scripts and not isinstance(hit, Match):
            hit = self._script(method, host, target, named) or hit
        if telling or target.find(b"?") >= 0:
            self._agree(hit, method, host, telling)
            self._refuse_named_path(hit, (method, host, target, named))
        if isinstance(hit, Match):
            rule: Rule = hit.operation
            if hit.operation.branches:
                rule = self.forks[id(rule)].by_head(target, headers) or rule
            if not isinstance(rule, PassRule):
                return rule.endpoint, Match(rule, hit.params, self)
            hit = rule
        if self.shared and (hit is None or hit.unmatched):
            self._refuse_elsewhere(method, host, target, named)
        if hit is not None and not hit.unmatched:
            return hit.endpoint, hit
        endpoint = self.router.endpoint(host, target)
        if endpoint is None:
            raise VaultError(Code.NOT_FOUND, _NO_ENDPOINT if self.rules.endpoints else _NO_RULES)
        return endpoint, None

    def _script(self, method: str, host: str, target: bytes, override: str | None) -> Match | None:
        """The operation of the program that PHP runs for a path that no operation has.

        Behind ``index.php`` the rest of a path mostly says what is meant, so there the query or the
        body has to say it.
        """
        path, mark, query = target.partition(b"?")
        script, front = script_of(path)
        match = self.router.match(method, host, script + mark + query, override)
        if not isinstance(match, Match) or not _is_script(match.operation):
            return None
        return None if front and not match.operation.branches else match

    def _refuse_elsewhere(
        self, method: str, host: str, target: bytes, override: str | None
    ) -> None:
        """Refuse a request that a rule of another endpoint of the application names."""
        for router in self._others(host, target):
            if isinstance(router.match(method, "", target, override), Match):
                raise VaultError(Code.OPERATION_DENIED, _NAMED_ELSEWHERE)

    def _refuse_named_path(self, hit: Match | PassRule | None, head: _RequestHead) -> None:
        """Refuse a query that names the path of another operation than the request has, unless
        rules tell requests apart by that.
        """
        method, host, target, override = head
        operation = hit.operation if isinstance(hit, Match) else None
        branches = operation.branches if operation is not None else ()
        distinguished = any(one.name == "rest_route" for rule in branches for one in rule.when)
        for path in () if distinguished else paths_in_query(target, self.router.rest_routes):
            named = self.router.match(method, host, path, override)
            posted = method.upper() == "POST" and self.router.overridable(host, path)
            if isinstance(named, Match) and named.operation is operation:
                continue
            if posted or isinstance(named, Match):
                raise VaultError(Code.BAD_REQUEST, _PATH_IN_QUERY)

    def _others(self, host: str, target: bytes) -> Sequence[Router]:
        """The rules of other endpoints before the same application."""
        endpoint = self.router.endpoint(host, target) if self.shared else None
        return () if endpoint is None else self.shared.get(endpoint.name, ())

    def _agree(
        self,
        hit: Match | PassRule | None,
        method: str,
        host: str,
        telling: Sequence[tuple[bytes, bytes]],
    ) -> None:
        """Refuse an address in a header that leads to another rule than the target does."""
        for address in [value for name, value in telling if TELLING[name] == TELLS_ADDRESS]:
            named = self.router.match(method, host, address)
            if isinstance(named, Match) and not (
                isinstance(hit, Match) and named.operation is hit.operation
            ):
                raise VaultError(
                    Code.BAD_REQUEST,
                    "A header of the request names another address than its target: send one.",
                )

    def address(self, host: str, field: tuple[bytes, bytes]) -> CarriedAddress | None:
        """The address that a field holds; ``None``: it holds no values, and passes as it is.

        A field that is called in another way than ``CARRIERS`` may hold that of a site that no
        endpoint serves.
        """
        before, authority, target, _ = ADDRESS.fullmatch(field[1]).groups()  # type: ignore[union-attr]  # it matches anything
        of, added = authority.decode("latin-1") if authority is not None else host, 0
        if authority is None:  # beside an unknown page, which is taken for one at the top
            lead = BEFORE_PATH.match(target)[0]  # type: ignore[index]  # it matches anything
            before, target, added = before + lead, b"/" + target[len(lead) :], 1
        try:
            rule = self._page(of, target)
        except VaultError as error:
            foreign = field[0].lower() not in CARRIERS and error.code is Code.NOT_FOUND
            return None if foreign else CarriedAddress(before, target, added, None)
        return None if rule is None else CarriedAddress(before, target, added, rule)

    def _page(self, host: str, target: bytes) -> Operation | None:
        """The operation of a page whose address may hold values, be it the answer to a POST."""
        for method in self.methods:
            hit = self.router.match(method, host, target)
            if isinstance(hit, Match) and hit.operation.addressed:
                return hit.operation
        return None

    def bare_addresses(
        self, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        """The fields of a request without the values in addresses that they hold.

        For callers who may not search: an application that leads back to where they came from would
        show them the tokens of values that they guess.
        """
        if not carries(headers, self.sign):
            return headers
        fields: list[tuple[bytes, bytes]] = []
        for field in headers:
            holds = holds_address(*field, self.sign) and field[0].lower() != _PAGE_STATE
            address = self.address(host, field) if holds else None
            fields.append(field if address is None else (field[0], address.bare))
        return fields

    def ruled(self, host: str, target: bytes) -> bool:
        others = self._others(host, target)
        return self.router.ruled(host, target) or any(one.ruled("", target) for one in others)

    def overridable(self, host: str, target: bytes) -> bool:
        others = self._others(host, target)
        return self.router.overridable(host, target) or any(
            one.overridable("", target) for one in others
        )

    def may_change_operation(self, match: Match, target: bytes) -> bool:
        return self.router.may_change_operation(match.operation, target)


_Compiled = TypeVar("_Compiled", bound=Matcher)


class CurrentRules(Generic[_Compiled]):
    """The rules in force: the one reference that a reload swaps.

    Requests under way keep the rules that matched them.
    """

    def __init__(self, runtime: _Compiled) -> None:
        self.runtime = runtime

    #: The current rules: another object after each reload.
    edition = property(attrgetter("runtime"))

    #: As of the current rules; no functions of their own: each would be one more call a request.
    match = property(attrgetter("runtime.match"))
    ruled = property(attrgetter("runtime.ruled"))
    overridable = property(attrgetter("runtime.overridable"))
    bare_addresses = property(attrgetter("runtime.bare_addresses"))

    def may_change_operation(self, match: Match, target: bytes) -> bool:
        """As ``Matcher.may_change_operation``, by the rules that made this match."""
        return cast("Matcher", match.scope).may_change_operation(match, target)


_Parts = tuple[
    RuleSet, Router, bytes, Mapping[int, Fork], tuple[Operation, ...], tuple[str, ...],
    Mapping[str, Sequence[Router]], bool,
]  # fmt: skip


def matcher_parts(rules: RuleSet) -> _Parts:
    """Return the parts of a ``Matcher``."""
    every = each_operation(rules.operations)
    in_paths = any(op.request.search and op.request.search.path for op in every)
    routed, forks = forked(rules.rules)
    trunks = [one for one in routed if isinstance(one, Operation) and one.branches]
    operations = *rules.operations, *trunks
    router = Router(routed, rules.endpoints)
    methods = [one for op in rules.operations if op.addressed for one in op.methods]
    sign = b"/" if in_paths else b"?"
    methods = list(dict.fromkeys(["GET", *methods]))
    scripts = any(map(_is_script, operations))
    return rules, router, sign, forks, operations, tuple(methods), _shared(rules, routed), scripts


def _is_script(operation: Operation) -> bool:
    """Whether the path of an operation is that of a program of PHP."""
    return operation.template.lower().endswith(".php")


def _shared(rules: RuleSet, routed: Sequence[Rule]) -> dict[str, list[Router]]:
    """Routers of the rules of other endpoints that send to the same application, by endpoint."""
    places: dict[object, list[Endpoint]] = {}
    for endpoint in rules.endpoints:
        address = urlsplit(endpoint.upstream)
        port = address.port or (443 if address.scheme == "https" else 80)
        places.setdefault((address.hostname, port), []).append(endpoint)
    shared = [some for some in places.values() if len(some) > 1]
    routers = {
        one.name: Router(
            [rule for rule in routed if rule.endpoint.name == one.name],
            [replace(one, hosts=frozenset(), prefix="")],
        )
        for some in shared
        for one in some
    }
    return {
        one.name: [routers[other.name] for other in some if other is not one]
        for some in shared
        for one in some
    }


def is_untouched(operation: Operation, request: Request) -> bool:
    """Whether a request holds nothing to swap: a read without searches, its ids in its path."""
    search, ident = operation.request.search, operation.id
    in_path = search is not None and search.path
    if operation.verb is not Verb.READ or request.body or operation.branches or in_path:
        return False
    if b"?" in request.target and ident is not None and ident.source is not IdSource.PATH:
        return False
    try:
        return search is None or not searches_any(search.query, request.target)
    except VaultError:
        return False  # the owner of the vault refuses it


def has_one_answer(operation: Operation) -> bool:
    """Whether what an answer means depends on nothing but the request and the whole answer."""
    special = operation.graph, operation.parts, operation.envelope
    return not (operation.response.special or any(special))


def is_plain_operation(operation: Operation) -> bool:
    """Whether a rule asks for nothing that takes more than an ordinary exchange."""
    answer, request = operation.response, operation.request
    special = (
        *(operation.branches, operation.graph, operation.parts, operation.envelope),
        *(answer.special, answer.in_parts, answer.stream, answer.carriers, answer.carried),
        *(answer.scan, request.search, operation.entity.scattered),
    )
    usual = answer.restore is Restore.NAMED and operation.verb is not Verb.DELETE
    return usual and not any(special)
