import aiohttp
import pytest

from proxy.telemetry.metrics import CONTENT_TYPE
from proxy.web.admin import admin_app
from tests.support.serving import serving

FAULTS: dict[str, str | None] = {}


async def rules() -> str | None:
    return FAULTS.get("rules")


async def vault() -> str | None:
    return None


@pytest.fixture
async def ask():
    FAULTS.clear()
    app = admin_app({"rules": rules, "vault": vault}, lambda: b"domicile_up 1\n")
    async with serving(app) as url, aiohttp.ClientSession(url) as session:

        async def asked(path: str, method: str = "GET"):
            async with session.request(method, path) as answer:
                return answer.status, answer.headers, await answer.read()

        yield asked


async def test_a_running_process_is_healthy(ask):
    status, headers, body = await ask("/healthz")
    assert (status, body) == (200, b'{"status": "ok"}')
    assert headers["Cache-Control"] == "no-store"
    assert "aiohttp" not in headers["Server"]


async def test_readiness_names_every_check(ask):
    assert (await ask("/readyz"))[2] == b'{"status": "ok", "checks": {"rules": "ok", "vault": "ok"}}'
    FAULTS["rules"] = "contacts.yaml does not load."
    status, _, body = await ask("/readyz")
    assert status == 503
    assert body == b'{"status": "unready", "checks": {"rules": "contacts.yaml does not load.", "vault": "ok"}}'


async def test_metrics_are_scraped_as_they_are(ask):
    status, headers, body = await ask("/metrics")
    assert (status, headers["Content-Type"], body) == (200, CONTENT_TYPE, b"domicile_up 1\n")


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/", "GET", 404), ("/metrics", "POST", 405), ("/api", "GET", 404)]
)
async def test_there_is_nothing_else(ask, path, method, status):
    assert (await ask(path, method))[0] == status
