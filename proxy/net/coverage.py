"""Coverage: each shape of path that no rule names is reported once, then counted.

The first exchanges of a shape are looked at while they pass by, a bounded beginning of each body;
nothing is held back for that. From then on a request of the shape costs one addition. Shapes are
bounded in number: beyond, requests are counted together.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from proxy.clock import Clock, system_clock
from proxy.net.coverage_report import CoverageReport, RuledUses, Unruled, UnruledPath
from proxy.redactor import content_coding as coded
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.coverage import (
    PathShapes,
    WatchedMember,
    joined_members,
    may_name,
    routes_of,
    written_path,
)
from proxy.redactor.message import RawHeaders, header
from proxy.redactor.rules import Endpoint, RuleSet, Unmatched
from proxy.redactor.suspicions import suspected, suspected_fields
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics

#: Shapes that are reported and counted separately, and those among them unknown to the application.
_SHAPES: Final = 500
_MISSING: Final = 100
#: Paths whose shape is remembered.
_REMEMBERED: Final = 4096
#: Bytes of a body that are looked at, and of a slice of them: no look takes long.
_SAMPLE: Final = 16 * 1024
_SLICE: Final = 4096
#: Exchanges that are looked at in the same moment.
_AT_ONCE: Final = 8

#: Statuses of unknown paths.
_UNKNOWN: Final = frozenset({404, 405, 410, 501})

#: Content types that are reported by name, and those among them without personal text.
_TEXTS: Final = frozenset(
    "application/json application/problem+json application/hal+json application/ld+json "
    "application/vnd.api+json application/scim+json"
    " application/json-patch+json application/merge-patch+json application/x-ndjson "
    "application/xml application/soap+xml"
    " application/x-www-form-urlencoded application/graphql application/pdf multipart/form-data "
    "multipart/mixed text/csv"
    " text/event-stream text/html text/plain text/xml".split()
)
_SILENT: Final = frozenset(
    "application/javascript application/octet-stream application/wasm application/zip application/font-woff text/css text/javascript".split()
)
_FAMILIES: Final = ("image/", "font/", "video/", "audio/")

#: Methods that are reported by name: any token is valid, and an invented one may hold personal
#: data.
COUNTED_METHODS: Final = frozenset(
    "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK REPORT SEARCH -".split()
)

_log = logs.logger("coverage")


class Sample:
    """The beginnings of one request and its answer, taken while they pass by."""

    __slots__ = ("answer", "coding", "fields", "location", "request", "target", "type")

    def __init__(self, target: bytes, fields: RawHeaders = ()) -> None:
        self.target = target
        self.fields = fields  #: of the request
        self.request = bytearray()
        self.answer = bytearray()
        self.type = ""  #: content type of the answer
        self.coding = b""  #: content coding of the answer
        self.location = b""  #: where the answer redirects to

    @property
    def packed(self) -> bytes:
        """Content coding of the request."""
        return coded.field(self.fields, b"content-encoding") or b""

    def asking(self, body: bytes | AsyncIterator[bytes]) -> bytes | AsyncIterator[bytes]:
        """Keep the beginning of the request's body."""
        if isinstance(body, bytes):
            self.request += body[:_SAMPLE]
            return body
        return _Tapped(body, self.request)

    def begin(self, headers: RawHeaders) -> None:
        """The answer begins."""
        self.type = media_type(header(headers, b"content-type"))
        self.coding = (header(headers, b"content-encoding") or b"").strip().lower()
        self.location = header(headers, b"location") or b""

    def take(self, piece: bytes) -> None:
        """A piece of the answer passes by."""
        _keep(self.answer, piece)


class _Tapped:
    """Iterate over pieces, which pass unchanged."""

    def __init__(self, pieces: AsyncIterator[bytes], sample: bytearray) -> None:
        self._pieces = pieces
        self._sample = sample

    def __aiter__(self) -> "_Tapped":
        return self

    async def __anext__(self) -> bytes:
        piece = await self._pieces.__anext__()
        _keep(self._sample, piece)
        return piece


def _keep(sample: bytearray, piece: bytes) -> None:
    if len(sample) < _SAMPLE:
        sample += piece[: _SAMPLE - len(sample)]


class Coverage:
    """Knows the shapes that were told. One per process."""

    def __init__(
        self,
        metrics: Metrics,
        rules: RuleSet,
        earlier: CoverageReport | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """``earlier``: ``report`` of the process before."""
        earlier = CoverageReport() if earlier is None else earlier
        self._metrics = metrics
        self._clock = clock
        self._shapes = PathShapes()
        self._unruled: dict[tuple[str, str, str], Unruled] = {}
        self._paths: dict[tuple[str, str, bytes], Unruled] = {}
        self._rules = earlier.rules
        self._templates: set[tuple[str, str]] = set()  #: of endpoints
        self._missing = 0
        self._full = False
        self._looking: set[asyncio.Task[None]] = set()
        self._uses = RuledUses(metrics, clock, rules, earlier)
        for path in earlier.unknown:
            self._resume(path)
        self.announce(rules)

    def report(self) -> CoverageReport:
        """Everything that was met, also by earlier processes."""
        paths = sorted(one.path for one in self._unruled.values() if one.cell is not None)
        return CoverageReport(paths, self._uses.uses(), self._uses.rules, self._upstreams)

    def _resume(self, path: UnruledPath) -> None:
        key = (path.endpoint, path.method, path.path)
        one = Unruled(key, self._metrics.cell("domicile_unmatched_requests_total", *key))
        one.since, one.earlier, one.reported = path.since, path.count, True
        for kind in path.kinds:
            self._metrics.cell("domicile_unmatched_suspected", *key, kind).value = 1
        for part, kinds in (path.places or {"answer": path.kinds}).items():
            one.places.setdefault(part, set()).update(kinds)
        one.members = path.members
        one.classes = sum(1 << int(answer[0]) for answer in {*path.answers})
        self._unruled[key] = one

    def announce(self, rules: RuleSet) -> None:
        """Adopt new rules: their words may be shown. Shapes in which such a word was hidden are
        forgotten, for a rule may name them by now; met again, they are told with the word.
        """
        templates = {(one.endpoint.name, written_path(one)) for one in rules.rules}
        if rules.version != self._rules:
            self._forget(templates - self._templates)
        self._rules, self._templates = rules.version, templates
        self._shapes = PathShapes((rule.template for rule in rules.rules), routes_of(rules.rules))
        self._upstreams = {one.name: one.upstream for one in rules.endpoints}
        self._paths.clear()
        self._uses.announce(rules)

    def _forget(self, templates: set[tuple[str, str]]) -> None:
        """Forget shapes that one of the paths of endpoints may be."""
        for key in list(self._unruled):
            endpoint, _, shape = key
            several = (path for name, path in templates if name == endpoint)
            if any(may_name(path, shape) for path in several):
                for kind in self._unruled.pop(key).kinds:
                    self._metrics.cell("domicile_unmatched_suspected", *key, kind).value = 0

    def find(self, endpoint: str, method: str, target: bytes) -> Unruled:
        """Return the entry of such a request's shape. Cheap for a recent path."""
        route = self._shapes.route(target)
        path = (endpoint, method, target.partition(b"?")[0] + route.encode())
        unruled = self._paths.get(path)
        if unruled is not None:
            return unruled
        key = (
            endpoint,
            method if method in COUNTED_METHODS else "other",
            self._shapes.shape(target) + route,
        )
        unruled = self._unruled.get(key)
        if unruled is None:
            if len(self._unruled) - self._missing < _SHAPES - _MISSING:
                return Unruled(key, None)
            unruled = self._rest(endpoint)
        if len(self._paths) >= _REMEMBERED:
            self._paths.clear()
        self._paths[path] = unruled
        return unruled

    def note(self, unruled: Unruled, status: int, sample: Sample | None) -> None:
        """Count a finished request of that shape; 0: without an answer of the application.

        One that was denied has no sample.
        """
        if not status:
            return
        if unruled.cell is None:
            unruled = self._admit(unruled, status)
        if unruled.cell is not None:
            unruled.cell.value += 1
            unruled.classes |= 1 << status // 100
        if sample is not None and not unruled.settled:
            self._look(unruled, status, sample)
        elif not unruled.reported:
            self._tell(unruled, status, "", {})

    def carried(self, endpoint: Endpoint, requests: Iterable[CarriedRequest]) -> None:
        """Count the requests of a finished envelope as if each came alone."""
        for one in requests:
            if one.label:
                cell = self._metrics.cell("domicile_inner_requests_total", endpoint.name, one.label)
                cell.value += 1
            elif endpoint.unmatched is not Unmatched.PASS:
                unruled = self.find(endpoint.name, one.method, one.target)
                denied = endpoint.unmatched is Unmatched.DENY
                self.note(unruled, one.status, None if denied else _sample_of(one))

    async def close(self) -> None:
        """Let looks that are under way be told, for a second at most; forget the samples."""
        if self._looking:
            await asyncio.wait(tuple(self._looking), timeout=1.0)
        for task in tuple(self._looking):
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)

    # ------------------------------------------------ what is told

    def _look(self, unruled: Unruled, status: int, sample: Sample) -> None:
        if len(self._looking) >= _AT_ONCE:
            return
        unruled.left -= 1
        task = asyncio.get_running_loop().create_task(self._find_kinds(unruled, status, sample))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _find_kinds(self, unruled: Unruled, status: int, sample: Sample) -> None:
        kinds = {
            "address": await asyncio.to_thread(_kinds, b"", b"", sample.target),
            "header": await asyncio.to_thread(suspected_fields, sample.fields),
            "request": await asyncio.to_thread(_kinds, bytes(sample.request), sample.packed),
        }
        if sample.type not in _SILENT and not sample.type.startswith(_FAMILIES):
            kinds["answer"] = await asyncio.to_thread(_kinds, bytes(sample.answer), sample.coding)
        if 200 <= status < 400:
            path = urlsplit(sample.location.decode("latin-1")).path if status >= 300 else ""
            leads = self._shapes.shape(path.encode()) if path[:1] == "/" else ""
            members = await asyncio.to_thread(_members, sample, status, leads)
            unruled.members = joined_members(unruled.members, members)
        if 200 <= status < 300 or status == 101:
            unruled.looks -= 1
        self._tell(unruled, status, sample.type, kinds)

    def _tell(
        self, unruled: Unruled, status: int, media: str, kinds: Mapping[str, list[str]]
    ) -> None:
        """Report the first exchange of a shape, and later ones that show something new."""
        new = set().union(*kinds.values()) - unruled.kinds
        for part, several in kinds.items():
            unruled.places[part].update(several)
        if unruled.reported and not new:
            return
        endpoint, method, shape = unruled.key
        for kind in new:
            self._metrics.cell(
                "domicile_unmatched_suspected", endpoint, method, shape, kind
            ).value = 1
        in_request = [
            kind for part in ("request", "address", "header") for kind in kinds.get(part, ())
        ]
        (_log.warning if new else _log.info)(
            "values are suspected in what no rule names"
            if unruled.reported
            else "no rule names this request",
            endpoint=endpoint,
            method=method,
            path=shape,
            status=status,
            content_type=media or "-",
            request_kinds=list(dict.fromkeys(in_request)),
            answer_kinds=kinds.get("answer", []),
        )
        unruled.reported = True

    def _admit(self, unruled: Unruled, status: int) -> Unruled:
        """The entry that counts requests of this shape from now on."""
        admitted = self._unruled.get(unruled.key)
        if admitted is not None:
            return admitted
        if status in _UNKNOWN:
            if self._missing >= _MISSING:
                return self._rest(unruled.key[0])
            self._missing += 1
        self._unruled[unruled.key] = unruled
        unruled.since = self._clock()
        unruled.cell = self._metrics.cell("domicile_unmatched_requests_total", *unruled.key)
        unruled.earlier = -int(unruled.cell.value)  # counted before it was forgotten
        return unruled

    def _rest(self, endpoint: str) -> Unruled:
        """Return the entry that counts all further shapes of an endpoint together."""
        key = (endpoint, "other", "other")
        rest = self._unruled.get(key)
        if rest is None:
            rest = self._unruled[key] = Unruled(
                key, self._metrics.cell("domicile_unmatched_requests_total", *key)
            )
            rest.reported, rest.looks, rest.since = True, 0, self._clock()
        if not self._full:
            self._full = True
            _log.warning(
                "too many paths without a rule: further shapes are counted together",
                count=len(self._unruled),
            )
        return rest


def _sample_of(one: CarriedRequest) -> Sample:
    sample = Sample(one.target)
    sample.request += one.body[:_SAMPLE]
    sample.answer += one.answer[:_SAMPLE]
    sample.type = "application/json"
    return sample


def media_type(value: bytes | None) -> str:
    """A content type by a standard name; ``other`` for the rest, empty for none."""
    if value is None:
        return ""
    name = value.partition(b";")[0].strip().lower().decode("ascii", "replace")
    if name in _TEXTS or name in _SILENT:
        return name
    family = next((family for family in _FAMILIES if name.startswith(family)), "")
    return f"{family}*" if family else "other"


def _members(sample: Sample, status: int, leads: str) -> list[WatchedMember]:
    """The members of an exchange that are suspected to hold something of a person."""
    # where rules name everything, nothing is ever looked at: a start does without it
    from proxy.redactor.tools.watched import Observation, watched_members

    query = sample.target.partition(b"?")[2].decode("utf-8", "replace")
    answer = _text(bytes(sample.answer), sample.coding)
    request = _text(bytes(sample.request), sample.packed)
    return watched_members(Observation(query, request, answer, sample.type, status, leads))


def _text(body: bytes, coding: bytes) -> str:
    """The beginning of a body; letters of ASCII are read in UTF-16 and UTF-32, too."""
    return coded.beginning(body, coding, _SAMPLE).decode("utf-8", "replace").replace("\0", "")


def _kinds(body: bytes, coding: bytes, target: bytes = b"") -> list[str]:
    """The kinds suspected in a body, which may be cut off, and in the target of a request."""
    texts = [_text(body, coding)] if body else []
    if target:
        texts.append(target.decode("utf-8", "replace").replace("/", " ").replace("?", "&"))
    kinds: dict[str, None] = {}
    for text in texts:
        for start in range(0, len(text), _SLICE):
            kinds.update(dict.fromkeys(suspected(text[start : start + _SLICE + 64])))
    return list(kinds)
