import json
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from proxy.admin.app import Watchers, admin_app, metrics_app, on_this_machine
from proxy.admin.console import Console
from proxy.errors import Code, Detail, VaultError
from proxy.net.coverage_report import CoverageReport
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
