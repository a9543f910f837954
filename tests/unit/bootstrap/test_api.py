from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.bootstrap.api import Around, history_policy, interface, limits, runner
from proxy.bootstrap.edge import open_guard
from proxy.config import load_settings
from proxy.errors import Code, VaultError
from proxy.functions.runner import Bounds
from proxy.telemetry.metrics import Metrics
from tests.support.api import Client, serving
from tests.support.examples import CONTACT
from tests.support.world import world


@asynccontextmanager
async def joined(
    folder: Any, metrics: Metrics, **environ: str
) -> AsyncIterator[tuple[Client, str]]:
    """An interface of those settings, a client of it, and a token."""
    async with world(folder) as here:
        await here.declare("contact", CONTACT)
        settings = load_settings(
            None, {f"DOMICILE__{name}": text for name, text in environ.items()}
        )
        made = interface(
            settings,
            here.realm,
            Around(
                here.office.service, metrics, open_guard(settings, metrics), here.services.audit
            ),
        )
        token = await here.office.token(await here.office.client())
        async with serving(made) as client:
            yield client, token


async def test_access_is_by_tokens_alone(tmp_path):
    async with joined(tmp_path, Metrics()) as (client, token):
        assert (
            await client("POST", "/api/models/contact", "writer", json={"id": "k"})
        ).status == 401
        assert (await client("POST", "/api/models/contact", token, json={"id": "k"})).status == 201


async def test_the_settings_hold(tmp_path):
    environ = {
        "LIMITS__BATCH": "2",
        "LIMITS__FIND": "3",
        "LIMITS__BODY": "1KiB",
        "MODELS__ON_EXISTING": "update",
    }
    async with joined(tmp_path, Metrics(), COUNTRY="de", **environ) as (client, token):
        batch = [{"id": str(number)} for number in range(3)]
        assert (await client("POST", "/api/models/contact/batch", token, json=batch)).status == 422
        for _ in range(2):
            body = {"country": "de", "records": batch[:2]}
            assert (
                await client("POST", "/api/models/contact/batch", token, json=body)
            ).status == 201
        answer = await client("POST", "/api/models/contact/find", token, json={})
        assert answer.json["meta"]["limit"] == 3
        page = {"options": {"limit": 4}}
        assert (await client("POST", "/api/models/contact/find", token, json=page)).status == 400
        large = {"id": "k", "name": "n" * 1100}
        assert (await client("POST", "/api/models/contact", token, json=large)).status == 413


async def test_requests_are_counted(tmp_path):
    metrics = Metrics()
    async with joined(tmp_path, metrics) as (client, token):
        await client("POST", "/api/models/contact", token, json={"id": "k"})
        await client("POST", "/api/models/contact", token, json={"id": "k"})
        await client("GET", "/nothing", token)
    text = metrics.render().decode()
    for status in (201, 409):
        assert (
            f'domicile_api_requests_total{{operation="create_record",status="{status}"}} 1.0'
            in text
        )
    assert "domicile_api_seconds_count 2.0" in text


def test_history_is_kept_as_the_settings_say():
    assert history_policy(load_settings(None, {})) == (30 * 86_400_000, False)
    told = load_settings(
        None, {"DOMICILE__HISTORY__KEEP": "0", "DOMICILE__HISTORY__KEEP_DELETED": "true"}
    )
    assert history_policy(told) == (0, True)
    assert limits(told).batch == 100


def test_a_history_that_is_no_time_is_a_fault():
    with pytest.raises(VaultError) as caught:
        load_settings(None, {"DOMICILE__HISTORY__KEEP": "ever"})
    assert caught.value.code is Code.BAD_SETTINGS


def test_functions_have_the_bounds_of_the_settings():
    told = {"TIME": "2500ms", "MEMORY": "128MiB", "RUNNING": "3"}
    made = runner(
        load_settings(None, {f"DOMICILE__FUNCTIONS__{name}": text for name, text in told.items()})
    )
    assert made._bounds == Bounds(2.5, 128 << 20, 3)
