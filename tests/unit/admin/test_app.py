import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import make_mocked_request

from proxy.admin.app import MOST_DRAFT, Console, Watchers, admin_app, metrics_app, on_this_machine
from proxy.clock import system_clock
from proxy.errors import Code, Detail, VaultError
from proxy.net.coverage import Coverage
from proxy.net.coverage_report import CoverageReport, UnruledPath
from proxy.redactor.load import load_rule_set
from proxy.redactor.rules import RuleSet
from proxy.telemetry.metrics import CONTENT_TYPE, Metrics
from proxy.telemetry.reloads import Reload
from tests.support.api import access
from tests.support.serving import serving
from tests.support.table import table

FAULTS: dict[str, str | None] = {}
SECRETS: dict[str, str] = {}


STATE = Reload(Metrics(), "rules")


async def up() -> bytes:
    return b"domicile_up 1\n"


async def audit() -> str | None:
    return FAULTS.get("audit")


async def vault() -> str | None:
    return None


@pytest.fixture
async def ask():
    FAULTS.clear()
    SECRETS.clear()
    STATE.succeeded()
    watchers = Watchers(access, lambda: SECRETS.get("scraper"))
    rules = RuleSet("none", (), (), ())
    console = Console(Path(), lambda: rules, CoverageReport, lambda _: {}, STATE)
    checks = {"audit": audit, "vault": vault}
    app = admin_app(checks, [STATE], up, watchers, console)
    async with serving(app) as url, aiohttp.ClientSession(url) as session:

        async def asked(path: str, method: str = "GET", shown: str = "Bearer chief", **more: str):
            headers = ({"Authorization": shown} if shown else {}) | more
            async with session.request(method, path, headers=headers) as answer:
                return answer.status, answer.headers, await answer.read()

        yield asked


async def test_a_running_process_is_healthy_for_everybody(ask):
    status, headers, body = await ask("/healthz", shown="")
    assert (status, body) == (200, b'{"status": "ok"}')
    assert headers["Cache-Control"] == "no-store"
    assert "aiohttp" not in headers["Server"]


async def test_readiness_names_every_check(ask):
    assert json.loads((await ask("/readyz", shown=""))[2]) == {
        "status": "ok",
        "checks": {"rules": "ok", "audit": "ok", "vault": "ok"},
        "stale": [],
    }
    FAULTS["audit"] = "The disk is full."
    status, _, body = await ask("/readyz")
    assert (status, json.loads(body)["status"]) == (503, "unready")
    assert json.loads(body)["checks"] == {
        "rules": "ok",
        "audit": "The disk is full.",
        "vault": "ok",
    }


async def test_what_is_stale_is_told_and_the_instance_stays_ready(ask):
    STATE.failed(
        VaultError(
            Code.BAD_RULES, "The rules have one fault.", (Detail("crm.yaml:3:1", "unknown key"),)
        )
    )
    status, _, body = await ask("/readyz", shown="")
    told = json.loads(body)
    assert (status, told["status"], told["stale"]) == (200, "ok", ["rules"])
    assert told["checks"]["rules"] == "stale: The rules have one fault. crm.yaml:3:1: unknown key"
    STATE.succeeded()
    assert json.loads((await ask("/readyz"))[2])["stale"] == []


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
async def test_callers_from_outside_read_names_of_checks_and_no_sentence(ask, name):
    from_outside = {name: "203.0.113.9"}
    FAULTS["audit"] = "The folder /srv/audit cannot be written."
    STATE.failed(
        VaultError(Code.BAD_RULES, "The rules have one fault.", (Detail("crm.yaml:3:1", "x"),))
    )
    for shown in ("", "Bearer nobody", "Bearer writer", "Bearer chief of acme"):
        status, _, body = await ask("/readyz", shown=shown, **from_outside)
        assert (status, json.loads(body)) == (
            503,
            {
                "status": "unready",
                "checks": {"rules": "stale", "audit": "failed", "vault": "ok"},
                "stale": ["rules"],
            },
        )
    SECRETS["scraper"] = "secret-of-the-scraper"
    for shown in ("Bearer chief", "Bearer secret-of-the-scraper"):
        checks = json.loads((await ask("/readyz", shown=shown, **from_outside))[2])["checks"]
        assert checks["audit"] == "The folder /srv/audit cannot be written."
        assert "crm.yaml:3:1" in checks["rules"]


@table(
    ("peer", "local"),
    [
        ("127.0.0.1", True), ("::1", True), ("10.244.0.1", False), ("2001:db8::1", False),
        ("::ffff:10.0.0.1", False), ("", False),
    ],
)  # fmt: skip
def test_loopback_alone_is_this_machine(peer, local):
    request = make_mocked_request("GET", "/readyz").clone(remote=peer)
    assert on_this_machine(request) is local


async def test_metrics_are_scraped_as_they_are(ask):
    status, headers, body = await ask("/metrics")
    assert (status, headers["Content-Type"], body) == (200, CONTENT_TYPE, b"domicile_up 1\n")


@pytest.mark.parametrize(
    ("shown", "status", "code"),
    [
        ("", 401, "unauthorized"), ("Bearer nobody", 401, "unauthorized"), ("Bearer ", 401, "unauthorized"),
        ("Bearer writer", 403, "forbidden"), ("Bearer acme", 403, "forbidden"), ("Bearer chief of acme", 403, "forbidden"),
    ],
)  # fmt: skip
async def test_metrics_are_for_administrators_of_the_first_environment(ask, shown, status, code):
    told, headers, body = await ask("/metrics", shown=shown)
    assert (told, json.loads(body)["code"]) == (status, code)
    assert b"domicile_up" not in body
    assert headers["Content-Type"] == "application/problem+json"
    assert (status != 401) or headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_scraper_shows_a_secret_of_its_own(ask):
    secret = "secret-of-the-scraper"
    assert (await ask("/metrics", shown=f"Bearer {secret}"))[0] == 401  # as long as there is none
    SECRETS["scraper"] = secret
    for shown in (f"Bearer {secret}", f"bearer  {secret}"):
        assert (await ask("/metrics", shown=shown))[::2] == (200, b"domicile_up 1\n")
    for shown in (
        "",
        "Bearer",
        f"Basic {secret}",
        f"Bearer {secret}x",
        f"Bearer {secret[:-1]}",
        f"Bearer {secret.upper()}",
        secret,
    ):
        assert (await ask("/metrics", shown=shown))[0] == 401
    assert (await ask("/metrics"))[0] == 200  # an administrator goes on being one


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/", "GET", 404), ("/metrics", "POST", 405), ("/api", "GET", 404)],
)
async def test_there_is_nothing_else(ask, path, method, status):
    assert (await ask(path, method))[0] == status


async def test_scrapers_have_a_listener_where_nobody_is_asked_for_a_token():
    async with serving(metrics_app(up)) as url, aiohttp.ClientSession(url) as session:
        async with session.get("/metrics") as answer:
            assert (answer.status, await answer.read()) == (200, b"domicile_up 1\n")
            assert (answer.headers["Content-Type"], answer.headers["Server"]) == (
                CONTENT_TYPE,
                "domicile",
            )
        async with session.get("/readyz") as answer:
            assert answer.status == 404


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
async def ask_of_console(tmp_path: Path) -> AsyncIterator[Asker]:
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


async def test_it_shows_the_rules_in_force_with_their_texts(ask_of_console: Asker) -> None:
    status, shown = await ask_of_console.get("/api/rules")
    assert status == 200
    assert shown["operations"] == ["POST /contacts", "GET /contacts/{id}"]
    assert shown["files"] == {"crm.yaml": RULES}
    assert UPSTREAM not in json.dumps(shown)


async def test_coverage_is_that_of_the_command(ask_of_console: Asker) -> None:
    _, shown = await ask_of_console.get("/api/rules/coverage")
    assert [one["match"] for one in shown["ruled"]] == ["POST /contacts", "GET /contacts/{id}"]
    assert shown["unknown"][0]["path"] == "/export"
    assert shown["unknown"][0]["suspected"] == ["email"]
    assert not shown["ok"]


async def test_a_rule_is_proposed_for_a_path_that_no_rule_names(ask_of_console: Asker) -> None:
    question = {"endpoint": UNKNOWN.endpoint, "method": UNKNOWN.method, "path": "/export"}
    status, data = await ask_of_console.post("/api/rules/learn", question)
    assert status == 200, data
    assert "name: crm" in data["rules"]
    assert UPSTREAM not in data["rules"]
    assert data["left_out"][0]["request"] == f"{UNKNOWN.method} /export"
    status, refused = await ask_of_console.post("/api/rules/learn", {**question, "path": "/none"})
    assert (status, "Nothing was met" in refused["detail"]) == (400, True)


async def test_a_draft_is_checked_with_every_fault_by_line_and_column(
    ask_of_console: Asker,
) -> None:
    good = await ask_of_console.draft("check", RULES)
    assert good["ok"]
    bad = await ask_of_console.draft(
        "check", RULES.replace("kind: email", "kind: mail").replace("pass:", "pas:")
    )
    assert [one["source"] for one in bad["faults"]] == ["crm.yaml:7:21", "crm.yaml:11:36"]
    assert (ask_of_console.folder / "crm.yaml").read_text() == RULES


async def test_a_second_file_is_checked_beside_those_in_place(ask_of_console: Asker) -> None:
    both = RULES.replace("name: crm", "name: shop")
    bad = await ask_of_console.draft("check", both, "shop.yaml")
    assert not bad["ok"], "two applications that nothing tells apart"
    good = await ask_of_console.draft(
        "check", both.replace("upstream:", "prefix: /shop, upstream:"), "shop.yaml"
    )
    assert not good["ok"]  # the one in place has neither host nor prefix


async def test_references_of_a_draft_are_not_read(ask_of_console: Asker) -> None:
    (ask_of_console.folder / "secret").write_text("http://zzsecret:1")
    text = RULES.replace("${file:upstream}", "${file:secret}")
    for what in ("check", "explain", "diff", "test"):
        assert "zzsecret" not in json.dumps(await ask_of_console.draft(what, text))
    missing = await ask_of_console.draft(
        "check", RULES.replace("${file:upstream}", "${env:NOT_SET}")
    )
    assert missing["ok"]


async def test_a_request_is_explained_by_the_rules_in_force_or_a_draft(
    ask_of_console: Asker,
) -> None:
    question = {"method": "POST", "path": "/contacts"}
    _, now = await ask_of_console.post("/api/rules/explain", question)
    assert "POST /contacts" in now["text"]
    renamed = RULES.replace("POST /contacts", "POST /people")
    draft = await ask_of_console.draft("explain", renamed, **question)
    assert draft["operation"] is None


async def test_a_draft_is_compared_with_the_files_in_place(ask_of_console: Asker) -> None:
    assert await ask_of_console.draft("diff", RULES) == {
        "ok": True,
        "loses": [],
        "gains": [],
        "changes": [],
    }
    less = await ask_of_console.draft("diff", RULES.replace("      email: {kind: email}\n", ""))
    assert not less["ok"]
    assert "email" in json.dumps(less["loses"])


async def test_tests_of_a_draft_are_run(ask_of_console: Asker) -> None:
    text = RULES + "tests:\n  - {name: t, call: {match: POST /contacts, json: {name: Ann}}}\n"
    assert await ask_of_console.draft("test", text) == {
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
    ask_of_console: Asker, headers: dict[str, str]
) -> None:
    for path in ("/api/rules", "/api/rules/coverage", "/api/rules/schema"):
        assert (await ask_of_console.get(path, **headers))[0] == 401
    assert (await ask_of_console.post("/api/rules/check", {"files": {}}, **headers))[0] == 401
    chief = {**headers, "Authorization": "Bearer chief"}
    assert (await ask_of_console.get("/api/rules", **chief))[0] == 200


async def test_what_is_no_question_is_told_so(ask_of_console: Asker) -> None:
    post: Callable[..., Any] = ask_of_console.session.post
    async with post("/api/rules/check", data=b"files=1") as answer:
        assert answer.status == 415
    for body in (b"[]", b"{", b'{"file": 1}'):
        async with post("/api/rules/check", data=body, headers=JSON) as answer:
            assert answer.status == 400
    for name in ("../x.yaml", ".x.yaml", "x.txt", "/etc/x.yaml"):
        assert (await ask_of_console.post("/api/rules/check", {"files": {name: RULES}}))[0] == 400
    async with post(
        "/api/rules/check", data=BytesIO(b" " * (MOST_DRAFT + 1)), headers=JSON
    ) as answer:
        assert answer.status == 413


JSON = {"Content-Type": "application/json"}


async def test_the_page_holds_nothing_and_runs_only_its_own_scripts(ask_of_console: Asker) -> None:
    for path, kind in (
        ("/console", "text/html"),
        ("/console.js", "text/javascript"),
        ("/console.css", "text/css"),
    ):
        async with ask_of_console.session.get(path, headers={"Host": "vault.example"}) as answer:
            assert (answer.status, answer.content_type) == (200, kind)
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
            assert "<script>" not in await answer.text()
