"""The console: a page in the browser, and the interface that it asks, under ``/api/rules``.

It shows the active rules and their coverage, and proposes a rule for a path that none names. It
checks, tests, explains and compares drafts of rule files, as ``domicile rules`` and ``domicile
coverage`` do. It changes nothing: rule files are shipped as files.

A draft may come from anybody on this machine, so its references are not read, and one draft is
worked on at a time, in a thread, so that those who are served do not wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from proxy.api.wire import error_answer
from proxy.errors import Code, VaultError
from proxy.net.coverage_report import CoverageReport, coverage_data
from proxy.redactor.load import load_draft
from proxy.redactor.load.reference import rule_schema
from proxy.redactor.load.sources import SUFFIXES
from proxy.redactor.rules import RuleSet
from proxy.redactor.tools import explain
from proxy.redactor.tools.difference import differences
from proxy.redactor.tools.proposal import propose
from proxy.redactor.tools.rule_data import changes_data, results_data, rules_data
from proxy.redactor.tools.watched import WatchedPath, learn_watched
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
        return rules_data(await self._draft(question))

    async def test(self, question: DraftRequest) -> dict[str, Any]:
        """The tests that stand in the files of the draft."""
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
