import asyncio
import io
import json

import pytest

from proxy.auth.token_service import TokenService
from proxy.auth.tokens import SIGNING_KEY_LIFETIME
from proxy.bootstrap.api import keep_keys, open_access
from proxy.clock import ManualClock
from proxy.config import Settings, load_settings
from proxy.crypto.keyset import Keyset
from proxy.storage.memory import MemoryStore
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from tests.support.audit import audit_context
from tests.support.auth import form
from tests.support.patience import PATIENCE
from tests.support.stores import FailingStore


@pytest.fixture
def settings() -> Settings:
    environment = {
        "DOMICILE__AUTH__TOKEN_LIFETIME": "60",
        "DOMICILE__AUTH__AUDIENCES": "[https://a.example]",
    }
    return load_settings(None, environment)


@pytest.fixture
def lines():
    """The events logged until now."""
    stream = io.StringIO()
    logs.configure(logs.Style("info", "json"), stream)
    yield lambda: [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    logs.configure(logs.Style())


async def test_settings_make_the_service_and_requests_are_counted(settings, lines):
    metrics = Metrics()
    service = await open_access(
        settings, MemoryStore(), {"default": Keyset.create("default")}, ManualClock(), metrics
    )
    made = await service.clients.create("crm", "default", admin=False)
    body = form(client_id=made.client.id, client_secret=made.secret)
    assert (await service.token(body, None, "192.0.2.1", audit_context()))["expires_in"] == 60
    assert service.audiences.first == "https://a.example"
    assert metrics.cell("domicile_token_requests_total", "issued").value == 1
    assert [line for line in lines() if "domicile init" in line]
    service.close()


async def test_with_a_client_nothing_is_said(settings, lines):
    store, keyset = MemoryStore(), {"default": Keyset.create("default")}
    service = await open_access(settings, store, keyset, ManualClock(), Metrics())
    await service.clients.create("crm", "default", admin=False)
    service.close()
    said = len(lines())
    (await open_access(settings, store, keyset, ManualClock(), Metrics())).close()
    assert len(lines()) == said


async def signs_with_another(service: TokenService, before: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while service.keys.current.kid == before:  # noqa: ASYNC110  # the task under test tells nobody
            await asyncio.sleep(0.001)


async def test_keys_are_replaced_by_age_as_soon_as_the_store_takes_one(settings, lines):
    store, clock = FailingStore(MemoryStore()), ManualClock()
    service = await open_access(
        settings, store, {"default": Keyset.create("default")}, clock, Metrics()
    )
    before = service.keys.current.kid
    store.fail("put_note", times=2)
    clock.advance(SIGNING_KEY_LIFETIME)
    task = asyncio.create_task(keep_keys(service, 0.001))
    await signs_with_another(service, before)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    service.close()
    assert before in service.keys.known
    assert lines().count("the key that signs access tokens is due, and could not be replaced") == 2
