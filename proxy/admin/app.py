"""The administration listener: ``/healthz``, ``/readyz``, ``/metrics`` and the console.

Health is public. Metrics reveal traffic, and the sentences of ``/readyz`` and the console reveal
files and addresses. So these are for administrators and operators of the environment ``default``
with an access token. A scraper that sends the secret of the setting ``admin.metrics_token`` gets
metrics and sentences; callers on the same machine get sentences and the console.

The console is a page in the browser, and the interface that it asks, under ``/api/rules``. It shows
the active rules and their coverage, and proposes a rule for a path that none names. It checks,
tests, explains and compares drafts of rule files, as ``domicile rules`` does, and changes nothing.
A draft may come from anybody on this machine, so its references are not read, and one draft is
worked on at a time, in a thread. What answers a question is imported with the first one: most
instances are never asked.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from proxy.api.access import not_admin
from proxy.api.wire import error_answer
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT
from proxy.model.rights import Principal, Role
from proxy.net.coverage_report import CoverageReport, coverage_data
from proxy.redactor.load import load_draft
from proxy.redactor.load.rule_keys import rule_schema
from proxy.redactor.load.sources import SUFFIXES
from proxy.redactor.rules import RuleSet
from proxy.redactor.tools import explain
from proxy.telemetry.metrics import CONTENT_TYPE
from proxy.telemetry.reloads import Reload

_T = TypeVar("_T")

_PAGE: Final = Path(__file__).with_name("page")
#: Bytes of a request of the console.
MOST_DRAFT: Final = 1024 * 1024
#: The page asks only where it comes from, and nothing else frames or scripts it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class DraftRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A question about the active rules, or about a draft: texts by the names of their files."""

    files: dict[str, str] = {}
    method: str = "GET"
    path: str = "/"
    host: str = ""
    role: str = ""
    endpoint: str = ""  #: of a path that the coverage lists


@dataclass(slots=True)
class Console:
    """Data and actions of the operator's console."""

    folder: Path  #: of the rule files, or the one file
    rules: Callable[[], RuleSet]  #: the active ones
    coverage: Callable[[], CoverageReport]
    run_tests: Callable[[RuleSet], Mapping[str, Sequence[str]]]  #: those of the rule files
    state: Reload  #: whether the files on disk are active
    _working: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def show(self, _: DraftRequest) -> dict[str, Any]:
        """Return the active rules, and the texts of their files."""
        from proxy.redactor.tools.rule_data import rules_data

        rules = self.rules()
        return {
            **rules_data(rules),
            "fault": await self.state.check(),
            "files": {
                Path(name).name: await asyncio.to_thread(_text, Path(name)) for name in rules.files
            },
            "roles": sorted({role for one in rules.endpoints for role in _roles(one.views)}),
        }

    async def covered(self, _: DraftRequest) -> dict[str, Any]:
        """Report what the active rules protect, what passes on purpose, and what no rule names."""
        return await asyncio.to_thread(coverage_data, self.coverage(), self.rules())

    async def proposed(self, question: DraftRequest) -> dict[str, Any]:
        """Propose rules for a path of the coverage that no rule names, as ``rules learn`` does."""
        from proxy.redactor.tools.proposal import propose
        from proxy.redactor.tools.watched import WatchedPath, learn_watched

        report = self.coverage()
        paths = [
            WatchedPath(one.method, one.path, one.count, one.members, list(one.kinds))
            for one in report.unknown
            if [one.endpoint, one.method, one.path]
            == [question.endpoint, question.method, question.path]
        ]
        # the address of the application is not told: a file may name it by reference
        lessons = await self._work(partial(learn_watched, paths))
        name = question.endpoint if question.endpoint in report.upstreams else "app"
        text, left_out = await self._work(partial(propose, lessons, name))
        return {"ok": True, "rules": text, "left_out": [one._asdict() for one in left_out]}

    async def check(self, question: DraftRequest) -> dict[str, Any]:
        """The draft, or every fault of it by file, line and column."""
        from proxy.redactor.tools.rule_data import rules_data

        return rules_data(await self._draft(question))

    async def test(self, question: DraftRequest) -> dict[str, Any]:
        """The tests that stand in the files of the draft."""
        from proxy.redactor.tools.rule_data import results_data

        draft = await self._draft(question)
        return results_data(await self._work(partial(self.run_tests, draft)))

    async def explained(self, question: DraftRequest) -> dict[str, Any]:
        """Return the effective rule of a request, by the draft or the active rules."""
        rules = await self._draft(question) if question.files else self.rules()
        rule = explain.find_operation(rules, question.method, question.path, question.host)
        data = explain.as_data(rule, question.role)
        return {"ok": True, **data, "text": explain.explanation_text(data)}

    async def compared(self, question: DraftRequest) -> dict[str, Any]:
        """Report the changes that the draft makes to each value, against the files on disk."""
        from proxy.redactor.tools.difference import differences
        from proxy.redactor.tools.rule_data import changes_data

        draft = await self._draft(question)
        on_disk = await self._work(partial(load_draft, self.folder, {}))
        return changes_data(await self._work(partial(differences, on_disk, draft)))

    async def schema(self, _: DraftRequest) -> dict[str, Any]:
        """The JSON Schema of the rule language."""
        return rule_schema()

    async def _draft(self, question: DraftRequest) -> RuleSet:
        for name in question.files:
            if Path(name).name != name or name.startswith(".") or Path(name).suffix not in SUFFIXES:
                raise VaultError(
                    Code.BAD_REQUEST, "A draft is a file with a name that ends in .yaml or .yml."
                )
        return await self._work(partial(load_draft, self.folder, question.files))

    async def _work(self, work: Callable[[], _T]) -> _T:
        async with self._working:
            return await asyncio.to_thread(work)


def console_routes(
    console: Console, admit: Callable[[web.Request], Awaitable[None]]
) -> list[web.RouteDef]:
    """The routes of the page and of its interface; ``admit`` raises ``VaultError`` for callers that
    may not see it. The page itself holds nothing and is for everybody.
    """

    def answering(
        handle: Callable[[DraftRequest], Awaitable[dict[str, Any]]],
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            try:
                await admit(request)
                return web.json_response(await handle(await _question(request)))
            except VaultError as error:
                if error.code is Code.BAD_RULES:
                    return web.json_response(_faults(error, console.folder))
                refused = error_answer("", error)
                headers = {**refused.headers, "Content-Type": refused.media_type}
                return web.Response(status=refused.status, body=refused.body, headers=headers)

        return answer

    return [
        web.get("/console", partial(_file, "console.html", "text/html")),
        web.get("/console.js", partial(_file, "console.js", "text/javascript")),
        web.get("/console.css", partial(_file, "console.css", "text/css")),
        web.get("/api/rules", answering(console.show)),
        web.get("/api/rules/coverage", answering(console.covered)),
        web.get("/api/rules/schema", answering(console.schema)),
        web.post("/api/rules/learn", answering(console.proposed)),
        web.post("/api/rules/check", answering(console.check)),
        web.post("/api/rules/test", answering(console.test)),
        web.post("/api/rules/explain", answering(console.explained)),
        web.post("/api/rules/diff", answering(console.compared)),
    ]


async def _file(name: str, kind: str, _: web.Request) -> web.Response:
    headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
    headers["Referrer-Policy"] = "no-referrer"
    text = await asyncio.to_thread((_PAGE / name).read_text, "utf-8")
    return web.Response(text=text, content_type=kind, headers=headers)


async def _question(request: web.Request) -> DraftRequest:
    """The question of a POST, which is JSON and said to be: no form of another site sends that."""
    if request.method != "POST":
        return DraftRequest()
    if request.content_type != "application/json":
        raise VaultError(Code.UNSUPPORTED_MEDIA_TYPE, "Send application/json.")
    try:
        return msgspec.json.decode(await request.read(), type=DraftRequest)
    except web.HTTPRequestEntityTooLarge:
        raise VaultError(Code.TOO_LARGE, f"A draft has at most {MOST_DRAFT} bytes.") from None
    except msgspec.MsgspecError:
        raise VaultError(
            Code.BAD_REQUEST,
            "Send an object with files, method, path, host and role, each where it is needed.",
        ) from None


def _faults(error: VaultError, folder: Path) -> dict[str, Any]:
    """The faults of a draft, by the names of its files."""
    before = f"{folder if folder.is_dir() else folder.parent}/"
    faults = [
        {"source": one.source.removeprefix(before), "text": one.text} for one in error.details
    ]
    return {"ok": False, "faults": faults}


def _text(file: Path) -> str:
    """The text of a rule file; empty where it is gone or cannot be read."""
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def _roles(views: Sequence[Any]) -> set[str]:
    return {role for view in views for role in view.who}


#: A check of readiness: ``None``, or a sentence that says what is wrong.
ReadinessCheck = Callable[[], Awaitable[str | None]]

#: Header fields of a proxy in front: such a caller is not on this machine.
_FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


class Watchers(NamedTuple):
    """The callers that may see metrics, and the sentences of checks."""

    access: Callable[[web.Request], Awaitable[Principal]]  #: who calls; raises ``VaultError``
    secret: Callable[[], str | None]  #: bearer token of a scraper, as currently configured

    async def check(self, request: web.Request) -> None:
        """Raise ``VaultError`` unless the request comes from one of them.

        That is UNAUTHORIZED, FORBIDDEN, BAD_REQUEST or ISSUER_UNREACHABLE.
        """
        secret, sent = self.secret(), request.headers.getall("Authorization", ())
        if secret is not None and len(sent) == 1 and _same(sent[0], secret):
            return
        principal = await self.access(request)
        if not principal.has(Role.OPERATOR) or principal.environment != DEFAULT:
            raise not_admin(
                f"Metrics are for administrators and operators of the environment {DEFAULT}."
            )

    async def admits(self, request: web.Request) -> bool:
        """Whether the caller is on this machine, or ``check`` lets it pass."""
        if on_this_machine(request):
            return True
        try:
            await self.check(request)
        except VaultError:
            return False
        return True


def on_this_machine(request: web.Request) -> bool:
    """Whether a request comes over loopback, with no proxy in front, and for no other site.

    A browser asks for pages of other sites, too, and by names whose owners point them at this
    machine (DNS rebinding).
    """
    try:
        address = ipaddress.ip_address(request.remote or "")
    except ValueError:
        return False
    if not address.is_loopback or any(name in request.headers for name in _FORWARDED):
        return False
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return False
    origin = request.headers.get("Origin")
    return _is_loopback_name(request.url.host) and origin in (None, f"http://{request.host}")


def _is_loopback_name(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def admin_app(
    checks: Mapping[str, ReadinessCheck],
    states: Sequence[Reload],
    metrics: Callable[[], Awaitable[bytes]],
    watchers: Watchers,
    console: Console,
) -> web.Application:
    """``/healthz``: this process answers.

    ``/readyz``: 200 if every check passes, else 503; the body names each check, and what is stale;
    watchers read there why.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        faults = {name: await check() for name, check in checks.items()}
        ready = not any(faults.values())
        stale = {state.what: fault for state in states if (fault := await state.check())}
        results = {state.what: "ok" for state in states} | dict.fromkeys(checks, "ok")
        if await watchers.admits(request):
            results |= {what: f"stale: {fault}" for what, fault in stale.items()}
            results |= {name: fault for name, fault in faults.items() if fault}
        else:
            results |= dict.fromkeys(stale, "stale")
            results |= {name: "failed" for name, fault in faults.items() if fault}
        data = {"status": "ok" if ready else "unready", "checks": results, "stale": list(stale)}
        return web.json_response(data, status=200 if ready else 503)

    async def scrape(request: web.Request) -> web.Response:
        try:
            await watchers.check(request)
        except VaultError as error:
            answer = error_answer("", error)
            headers = {**answer.headers, "Content-Type": answer.media_type}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        return _metrics_answer(await metrics())

    async def admit(request: web.Request) -> None:
        if not on_this_machine(request):
            await watchers.check(request)

    app = web.Application(client_max_size=MOST_DRAFT)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", scrape)
    app.router.add_routes(console_routes(console, admit))
    app.on_response_prepare.append(_set_headers)
    return app


def metrics_app(metrics: Callable[[], Awaitable[bytes]]) -> web.Application:
    """``/metrics`` for everybody who reaches the listener, and nothing else."""

    async def scrape(_: web.Request) -> web.Response:
        return _metrics_answer(await metrics())

    app = web.Application(client_max_size=1024)
    app.router.add_get("/metrics", scrape)
    app.on_response_prepare.append(_set_headers)
    return app


def _metrics_answer(metrics: bytes) -> web.Response:
    return web.Response(body=metrics, headers={"Content-Type": CONTENT_TYPE})


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Hide the software and forbid caching."""
    response.headers["Server"] = "domicile"
    response.headers["Cache-Control"] = "no-store"


def _same(sent: str, secret: str) -> bool:
    """Whether a field shows the secret as its bearer token; takes as long for a wrong one."""
    scheme, _, token = sent.partition(" ")
    value = token.strip(" ").encode("utf-8", "surrogateescape")
    return scheme.lower() == "bearer" and hmac.compare_digest(value, secret.encode())
