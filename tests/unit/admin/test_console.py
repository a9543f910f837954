"""The console's interface answers those who may see it, reads no reference of a draft, and changes
nothing.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from proxy.admin.app import Watchers, admin_app
from proxy.admin.console import MOST_DRAFT, Console
from proxy.clock import system_clock
from proxy.net.coverage import Coverage
from proxy.net.coverage_report import CoverageReport, UnruledPath
from proxy.redactor.load import load_rule_set
from proxy.redactor.rules import RuleSet
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from tests.support.api import access
from tests.support.serving import serving

RULES = """\
version: 1
endpoint: {name: crm, upstream: "${file:upstream}"}
entities:
  contact:
    fields:
      name: {kind: name}
      email: {kind: email}
operations:
  - {match: POST /contacts, create: contact}
  - {match: "GET /contacts/{id}", read: contact}
  - {match: "GET /static/{path*}", pass: true}
"""
UPSTREAM = "http://10.1.2.3:3000"
UNKNOWN = UnruledPath("crm", "GET", "/export", 0, 3, ("email",), {"answer": ("email",)})


@dataclass
class Asker:
    """Asks the administration listener as a caller on this machine."""

    session: aiohttp.ClientSession
    folder: Path

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(path, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def post(self, path: str, question: Any, **headers: str) -> tuple[int, Any]:
        async with self.session.post(path, json=question, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def draft(self, what: str, text: str, name: str = "crm.yaml", **more: str) -> Any:
        status, data = await self.post(f"/api/rules/{what}", {"files": {name: text}, **more})
        assert status == 200, data
        return data


async def nothing() -> bytes:
    return b""


@pytest_asyncio.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asker]:
    (tmp_path / "crm.yaml").write_text(RULES)
    (tmp_path / "upstream").write_text(UPSTREAM)
    rules = load_rule_set(tmp_path)
    coverage = Coverage(Metrics(), rules, CoverageReport([UNKNOWN]), system_clock)

    def run_tests(draft: RuleSet) -> Mapping[str, list[str]]:
        return {test.name: ["does not hold"] for test in draft.tests}

    state = Reload(Metrics(), "rules")
    console = Console(tmp_path, lambda: rules, coverage.report, run_tests, state)
    app = admin_app({}, [], nothing, Watchers(access, lambda: None), console)
    async with serving(app) as url, aiohttp.ClientSession(url) as session:
        yield Asker(session, tmp_path)


async def test_it_shows_the_rules_in_force_with_their_texts(ask: Asker) -> None:
    status, shown = await ask.get("/api/rules")
    assert status == 200
    assert shown["operations"] == ["POST /contacts", "GET /contacts/{id}"]
    assert shown["files"] == {"crm.yaml": RULES}
    assert UPSTREAM not in json.dumps(shown)


async def test_coverage_is_that_of_the_command(ask: Asker) -> None:
    _, shown = await ask.get("/api/rules/coverage")
    assert [one["match"] for one in shown["ruled"]] == ["POST /contacts", "GET /contacts/{id}"]
    assert shown["unknown"][0]["path"] == "/export"
    assert shown["unknown"][0]["suspected"] == ["email"]
    assert not shown["ok"]


async def test_a_rule_is_proposed_for_a_path_that_no_rule_names(ask: Asker) -> None:
    question = {"endpoint": UNKNOWN.endpoint, "method": UNKNOWN.method, "path": "/export"}
    status, data = await ask.post("/api/rules/learn", question)
    assert status == 200, data
    assert "name: crm" in data["rules"]
    assert UPSTREAM not in data["rules"]
    assert data["left_out"][0]["request"] == f"{UNKNOWN.method} /export"
    status, refused = await ask.post("/api/rules/learn", {**question, "path": "/none"})
    assert (status, "Nothing was met" in refused["detail"]) == (400, True)


async def test_a_draft_is_checked_with_every_fault_by_line_and_column(ask: Asker) -> None:
    good = await ask.draft("check", RULES)
    assert good["ok"]
    bad = await ask.draft(
        "check", RULES.replace("kind: email", "kind: mail").replace("pass:", "pas:")
    )
    assert [one["source"] for one in bad["faults"]] == ["crm.yaml:7:21", "crm.yaml:11:36"]
    assert (ask.folder / "crm.yaml").read_text() == RULES


async def test_a_second_file_is_checked_beside_those_in_place(ask: Asker) -> None:
    both = RULES.replace("name: crm", "name: shop")
    bad = await ask.draft("check", both, "shop.yaml")
    assert not bad["ok"], "two applications that nothing tells apart"
    good = await ask.draft(
        "check", both.replace("upstream:", "prefix: /shop, upstream:"), "shop.yaml"
    )
    assert not good["ok"]  # the one in place has neither host nor prefix


async def test_references_of_a_draft_are_not_read(ask: Asker) -> None:
    (ask.folder / "secret").write_text("http://zzsecret:1")
    text = RULES.replace("${file:upstream}", "${file:secret}")
    for what in ("check", "explain", "diff", "test"):
        assert "zzsecret" not in json.dumps(await ask.draft(what, text))
    missing = await ask.draft("check", RULES.replace("${file:upstream}", "${env:NOT_SET}"))
    assert missing["ok"]


async def test_a_request_is_explained_by_the_rules_in_force_or_a_draft(ask: Asker) -> None:
    question = {"method": "POST", "path": "/contacts"}
    _, now = await ask.post("/api/rules/explain", question)
    assert "POST /contacts" in now["text"]
    renamed = RULES.replace("POST /contacts", "POST /people")
    draft = await ask.draft("explain", renamed, **question)
    assert draft["operation"] is None


async def test_a_draft_is_compared_with_the_files_in_place(ask: Asker) -> None:
    assert await ask.draft("diff", RULES) == {"ok": True, "loses": [], "gains": [], "changes": []}
    less = await ask.draft("diff", RULES.replace("      email: {kind: email}\n", ""))
    assert not less["ok"]
    assert "email" in json.dumps(less["loses"])


async def test_tests_of_a_draft_are_run(ask: Asker) -> None:
    text = RULES + "tests:\n  - {name: t, call: {match: POST /contacts, json: {name: Ann}}}\n"
    assert await ask.draft("test", text) == {
        "ok": False,
        "tests": [{"name": "t", "problems": ["does not hold"]}],
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Forwarded-For": "203.0.113.9"},
    ],
    ids=lambda headers: next(iter(headers)),
)
async def test_pages_of_other_sites_and_callers_behind_proxies_are_refused(
    ask: Asker, headers: dict[str, str]
) -> None:
    for path in ("/api/rules", "/api/rules/coverage", "/api/rules/schema"):
        assert (await ask.get(path, **headers))[0] == 401
    assert (await ask.post("/api/rules/check", {"files": {}}, **headers))[0] == 401
    chief = {**headers, "Authorization": "Bearer chief"}
    assert (await ask.get("/api/rules", **chief))[0] == 200


async def test_what_is_no_question_is_told_so(ask: Asker) -> None:
    post: Callable[..., Any] = ask.session.post
    async with post("/api/rules/check", data=b"files=1") as answer:
        assert answer.status == 415
    for body in (b"[]", b"{", b'{"file": 1}'):
        async with post("/api/rules/check", data=body, headers=JSON) as answer:
            assert answer.status == 400
    for name in ("../x.yaml", ".x.yaml", "x.txt", "/etc/x.yaml"):
        assert (await ask.post("/api/rules/check", {"files": {name: RULES}}))[0] == 400
    async with post(
        "/api/rules/check", data=BytesIO(b" " * (MOST_DRAFT + 1)), headers=JSON
    ) as answer:
        assert answer.status == 413


JSON = {"Content-Type": "application/json"}


async def test_the_page_holds_nothing_and_runs_only_its_own_scripts(ask: Asker) -> None:
    for path, kind in (
        ("/console", "text/html"),
        ("/console.js", "text/javascript"),
        ("/console.css", "text/css"),
    ):
        async with ask.session.get(path, headers={"Host": "vault.example"}) as answer:
            assert (answer.status, answer.content_type) == (200, kind)
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
            assert "<script>" not in await answer.text()
