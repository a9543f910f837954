"""Routing: the operation of a request, if any. Match wide, forward exact.

A plain path costs one look-up in a trie. Only unusual paths (escapes, ``//``, ``;``, backslash, dot
segments, trailing slash) pay for ``path.readings``. What counts as the same request:

* the path in any usual reading, and in either case of its ASCII letters when no rule has it exactly
  so (frameworks that ignore case would serve it);
* the method in any case; GET rules match HEAD; the method named by ``X-HTTP-Method-Override``
  (``override``) and, for a POST, by the query parameter ``_method`` (in any spelling) counts beside
  the real one. A ``_method`` in a body is for the caller of ``match`` to pass as ``override``: a
  router sees no bodies, ``overridable`` says when it is worth looking;
* the host in any case, with or without port and trailing dot; an absolute target's authority counts
  beside ``Host``.

Readings that hit two different operations are refused (``BAD_REQUEST``), and so is a PATCH that
anything but the real method names, if rules name its path and not that (``OPERATION_DENIED``). A
hit and a miss is the hit; ``pass: true`` counts as a miss beside an operation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Protocol

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from proxy.redactor.method_override import maybe_in_query, methods_named, refuse_disputed
from proxy.redactor.path import (
    PathReading,
    Target,
    bare_host,
    is_plain,
    looser,
    page_of_data,
    path_segments,
    readings_of,
    split_target,
    unmistakable,
)
from proxy.redactor.path_template import PathTemplate, RouteMatch, Trie, overlaps, parse_template
from proxy.redactor.rules import Endpoint, Match, Operation, PassRule, Rule, Verb

#: Why a request that no rule names may not pass on a path that rules name.
UNNAMED = (
    "Rules name this path, but not this PATCH, upload, search by QUERY or other protocol on it, "
    "which could carry what they protect. Write an operation for it, with 'pass: true' where it "
    "carries nothing personal."
)

#: Methods that need no second look: upper case already, and not HEAD, which is GET.
_PLAIN_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NOTHING: Mapping[str, str] = MappingProxyType({})


class MatchingRules(Protocol):
    """Rules that requests are matched by (``Matcher`` and all that stand before one)."""

    def match(
        self,
        method: str,
        host: str,
        target: bytes,
        headers: RawHeaders,
        override: str | None = None,
    ) -> tuple[Endpoint, Match | PassRule | None]:
        """Return the endpoint of the request, and the operation or passing rule that names it.

        ``host`` is the requested authority, in lower case, with its port if there is one;
        ``override`` is a method from the body, which counts in addition to the real one. Raises
        ``VaultError`` (BAD_REQUEST) if two readings of the request hit different rules, NOT_FOUND
        if no endpoint serves the host and path.
        """

    def ruled(self, host: str, target: bytes) -> bool:
        """Whether an operation of any method names this path."""

    def overridable(self, host: str, target: bytes) -> bool:
        """Whether a POST without an operation might have one by a method that its body names."""

    def may_change_operation(self, match: Match, target: bytes) -> bool:
        """Whether a method in its body may lead a POST from the operation found to another one."""


class _Routes:
    """The rules of one endpoint: by method and path, in exact and in folded case."""

    __slots__ = (
        "capitalized", "case_folded", "endpoint", "exact", "folded_prefix", "override_rules",
        "overrides", "paths", "prefix",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.prefix = path_segments(endpoint.prefix.encode())
        self.folded_prefix = b"/".join(self.prefix).lower()
        self.exact: dict[str, Trie[Rule]] = {}
        self.case_folded: dict[str, Trie[Rule]] = {}
        self.overrides: Trie[Operation] = Trie(fold=True)  #: that a POST may mean by ``_method``
        self.paths: Trie[Operation] = Trie(fold=True)  #: of operations, whatever their method
        self.capitalized: set[str] = set()  #: methods with a rule whose path has a capital
        self.override_rules: list[tuple[PathTemplate, Operation]] = []  #: those in ``overrides``

    def add(self, operation: Rule) -> None:
        template = parse_template(operation.template)
        capitalized = any(segment.text != segment.text.lower() for segment in template.segments)
        for method in operation.methods:
            self.exact.setdefault(method, Trie()).add(template, operation)
            self.case_folded.setdefault(method, Trie(fold=True)).add(template, operation)
            if capitalized:
                self.capitalized.add(method)
        if isinstance(operation, PassRule):
            return
        self.paths.add(template, operation)
        if _matters_to_post(operation):
            self.overrides.add(template, operation)
            self.override_rules.append((template, operation))

    def find(self, method: str, path: Sequence[bytes]) -> RouteMatch[Rule] | None:
        """The rule of a path; one in other letter case only if no operation has it exactly."""
        trie = self.exact.get(method)
        if trie is None:
            return None
        hit = trie.find(path)
        if hit is not None and isinstance(hit[0], Operation):
            return hit
        if method in self.capitalized or path != tuple([part.lower() for part in path]):
            return _first(hit, self.case_folded[method].find(path))
        return hit


class Router:
    """Finds the operation and the endpoint of a request; built once per rule set, immutable."""

    def __init__(self, operations: Iterable[Rule], endpoints: Iterable[Endpoint]) -> None:
        self._sites = {endpoint.name: _Routes(endpoint) for endpoint in endpoints}
        for operation in operations:
            self._sites[operation.endpoint.name].add(operation)
        self._hostless = _longest_prefix_first(
            site for site in self._sites.values() if not site.endpoint.hosts
        )
        hosts = {host for site in self._sites.values() for host in site.endpoint.hosts}
        self._by_host = {
            host: _longest_prefix_first(
                site for site in self._sites.values() if host in site.endpoint.hosts
            )
            + self._hostless
            for host in hosts
        }
        self.rest_routes = {b for s in self._sites.values() for b in s.endpoint.rest_routes}
        everywhere = self._hostless[0] if len(self._sites) == 1 and self._hostless else None
        self._override_answers: dict[int, tuple[bool, bool]] = {}
        #: the one endpoint without host and prefix, which is how most proxies run: nothing to
        #: choose from
        self._only = everywhere if everywhere and not everywhere.prefix else None

    def match(
        self, method: str, host: str, target: bytes, override: str | None = None
    ) -> Match | PassRule | None:
        """The operation of a request, the rule that lets it pass, or ``None``: no rule names it.

        ``override``: a method that a header names. Raises ``VaultError``, see the module.
        """
        path, _, query = target.partition(b"?")
        if override or (query and maybe_in_query(query)) or not is_plain(path):
            return self._match_any(method, host, split_target(target), override)
        parts, sites, site = tuple(path.split(b"/")[1:]), self._hostless, self._only
        if site is None:
            if self._by_host:
                sites = self._by_host.get(bare_host(host), sites)
            site = _site(sites, parts)
        trie = None if site is None else site.exact.get(method)
        if trie is None and method not in _PLAIN_METHODS:
            return self._match_any(method, host, Target(path, b"", None), None)
        hit: RouteMatch[Rule] | None = None
        if trie is not None and site is not None:
            hit = trie.find(parts)
            if (hit is None or isinstance(hit[0], PassRule)) and (
                method in site.capitalized or path != path.lower()
            ):
                hit = _first(hit, site.case_folded[method].find(parts))
        if path.find(b".") >= 0:  # ``in`` asks first whether it is a number: an exception each time
            hit = _agreed_with_looser(hit, sites, [method], (parts,))
        return _as_match(hit) if hit else None

    def _match_any(
        self, method: str, host: str, parts: Target, override: str | None
    ) -> Match | PassRule | None:
        """The same for all hosts, methods and paths that the request can be read as."""
        paths = readings_of(parts)
        choices, methods = self._sites_of(host, parts), methods_named(method, parts.query, override)
        hit = _agreed(choices, methods, paths)
        for sites in choices:
            hit = _agreed_with_looser(hit, sites, methods, paths)
        if hit is None and "PATCH" in methods[1:] and self._ruled(product(choices, paths)):
            raise VaultError(Code.OPERATION_DENIED, UNNAMED)
        if hit is not None and isinstance(hit[0], Operation):
            refuse_disputed(method, methods, hit[0])
            if hit[0].verb in (Verb.UPDATE, Verb.DELETE):
                ways = unmistakable(parts.path, parts.marked)
                reached = [[one[0] for one in _hits([of], methods, ways)] for of in choices]
                if any(all(one is not hit[0] for one in rules) for rules in reached):
                    raise _two_ways()
        return _as_match(hit) if hit else None

    def ruled(self, host: str, target: bytes) -> bool:
        """Whether an operation of any method names this path in any reading."""
        return self._ruled(((site,), path) for site, path in self._readings_of(host, target))

    @staticmethod
    def _ruled(readings_of: Iterable[tuple[Sequence[_Routes], PathReading]]) -> bool:
        return any(
            site.paths.find(reading)
            for sites, path in readings_of
            if (site := _site(sites, path)) is not None
            for reading in (path, *looser(path))
        )

    def endpoint(self, host: str, target: bytes) -> Endpoint | None:
        """The endpoint of a request, or ``None``; two readings of two raise ``BAD_REQUEST``."""
        if self._only is not None:
            return self._only.endpoint
        endpoints = {
            site.endpoint.name: site.endpoint for site, _ in self._readings_of(host, target)
        }
        if len(endpoints) > 1:
            raise VaultError(
                Code.BAD_REQUEST,
                "The request can be read as one for two applications; write its path plainly.",
            )
        return next(iter(endpoints.values()), None)

    def overridable(self, host: str, target: bytes) -> bool:
        """Whether rules of other methods name this path, so that ``_method`` in a POST matters."""
        return any(
            site.overrides.find(reading)
            for site, path in self._readings_of(host, target)
            for reading in (path, *looser(path))
        )

    def may_change_operation(self, operation: Operation, target: bytes) -> bool:
        """Whether a ``_method`` in the body of a POST for this operation may select another one.

        Computed once for each. A GET that names nothing but parameters matters only where the
        target has some.
        """
        answers = self._override_answers.get(id(operation))
        if answers is None:
            template = parse_template(operation.template)
            others = [
                one
                for path, one in self._sites[operation.endpoint.name].override_rules
                if one is not operation and overlaps(template, path)
            ]
            answers = (
                any(set(one.methods) != {"GET"} or one.request.body for one in others),
                bool(others),
            )
            self._override_answers[id(operation)] = answers
        return answers[target.find(b"?") >= 0]

    def _readings_of(self, host: str, target: bytes) -> Iterator[tuple[_Routes, PathReading]]:
        """Every endpoint and path that a request can be read as one for."""
        path = target.partition(b"?")[0]
        if is_plain(path):
            segments = path_segments(path)
            site = _site(
                self._by_host.get(bare_host(host), self._hostless)
                if self._by_host
                else self._hostless,
                segments,
            )
            if site is not None:
                yield site, segments
            return
        parts = split_target(target)
        for sites, reading in product(self._sites_of(host, parts), readings_of(parts)):
            site = _site(sites, reading)
            if site is not None:
                yield site, reading

    def _sites_of(self, host: str, parts: Target) -> list[tuple[_Routes, ...]]:
        """The endpoints that fit host and absolute target, best first."""
        if not self._by_host:
            return [self._hostless]
        chosen = [self._by_host.get(bare_host(host), self._hostless)]
        if parts.authority is not None:
            other = self._by_host.get(bare_host(parts.authority.decode("latin-1")), self._hostless)
            if other is not chosen[0]:
                chosen.append(other)
        return chosen


def _matters_to_post(operation: Operation) -> bool:
    """Whether values would go by in the clear if an application took a POST for this operation.

    A GET rule rarely has any.
    """
    if set(operation.methods) - {"POST", "GET"}:
        return True
    rule = operation.request
    return "GET" in operation.methods and bool(rule.body or rule.search)


def _longest_prefix_first(sites: Iterable[_Routes]) -> tuple[_Routes, ...]:
    return tuple(sorted(sites, key=lambda site: -len(site.prefix)))


def _site(sites: Sequence[_Routes], path: PathReading) -> _Routes | None:
    """The endpoint with the longest prefix; in other letter case where none of its length fits."""
    near: _Routes | None = None
    for site in sites:
        if near is not None and len(site.prefix) < len(near.prefix):
            break
        start = path[: len(site.prefix)]
        if start == site.prefix:
            return site
        if near is None and b"/".join(start).lower() == site.folded_prefix:
            near = site
    return near


def _agreed(
    choices: list[tuple[_Routes, ...]], methods: Sequence[str], paths: tuple[PathReading, ...]
) -> RouteMatch[Rule] | None:
    """The one operation that all readings with a hit agree on, as the standard reading has it."""
    agreed: RouteMatch[Rule] | None = None
    for hit in _hits(choices, methods, paths):
        agreed = _first(agreed, hit)
    return agreed


def _first(
    first: RouteMatch[Rule] | None, second: RouteMatch[Rule] | None
) -> RouteMatch[Rule] | None:
    """Combine two readings: an operation beats a passing rule, two operations are refused."""
    if first is None or second is None:
        return first or second
    if isinstance(second[0], PassRule):
        return first
    if isinstance(first[0], PassRule):
        return second
    if second[0] is not first[0]:
        raise _two_ways()
    return first


def _agreed_with_looser(
    agreed: RouteMatch[Rule] | None,
    sites: Sequence[_Routes],
    methods: Sequence[str],
    paths: Iterable[PathReading],
) -> RouteMatch[Rule] | None:
    """Combine a match with those of looser readings of the path.

    A rule whose template ends in a fixed text is certain: no looser reading counts then. Where the
    data of a page is asked for, its rule counts, and none whose placeholder takes the name of that.
    """
    if agreed is not None and not _ends_openly(agreed[0].template):
        return agreed
    choices, paths = [tuple(sites)], tuple(paths)
    pages = tuple([page for path in paths if (page := page_of_data(path)) is not None])
    of_page = _agreed(choices, methods, pages)
    if of_page is not None and isinstance(of_page[0], Operation):
        return of_page
    loose = tuple(reading for path in paths for reading in looser(path))
    return _first(agreed, _agreed(choices, methods, loose))


def _ends_openly(template: str) -> bool:
    last = template.rstrip("/").rpartition("/")[2]
    return last.startswith("{") and last.find("}") == len(last) - 1


def _two_ways() -> VaultError:
    return VaultError(
        Code.BAD_REQUEST, "The request can be read in two ways; write its path and method plainly."
    )


def _hits(
    choices: list[tuple[_Routes, ...]], methods: Sequence[str], paths: tuple[PathReading, ...]
) -> Iterator[RouteMatch[Rule]]:
    """Yield the match of each combination of host, reading and method."""
    for sites, path in product(choices, paths):
        site = _site(sites, path)
        if site is not None:
            yield from (hit for method in methods if (hit := site.find(method, path)))


def _as_match(hit: RouteMatch[Rule]) -> Match | PassRule:
    operation, names, values = hit
    if isinstance(operation, PassRule):
        return operation
    if not names:
        return Match(operation, _NOTHING)
    # as nearly always: making a generator of pairs would take longer than the rest
    if len(names) == 1:
        return Match(operation, {names[0]: str(values[0], "utf-8", "surrogateescape")})
    texts = (str(value, "utf-8", "surrogateescape") for value in values)
    return Match(operation, dict(zip(names, texts, strict=True)))
