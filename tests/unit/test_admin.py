import json

import aiohttp
import pytest

from proxy.admin import Watchers, admin_app
from proxy.errors import Code, Detail, VaultError
from proxy.telemetry.metrics import CONTENT_TYPE, Metrics
from proxy.telemetry.reloads import Reload
from tests.support.api import access
from tests.support.serving import serving

FAULTS: dict[str, str | None] = {}
SECRETS: dict[str, str] = {}


STATE = Reload(Metrics(), "rules")


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
    app = admin_app({"audit": audit, "vault": vault}, [STATE], lambda: b"domicile_up 1\n", watchers)
    async with serving(app) as url, aiohttp.ClientSession(url) as session:

        async def asked(path: str, method: str = "GET", shown: str = "Bearer chief"):
            headers = {"Authorization": shown} if shown else {}
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
