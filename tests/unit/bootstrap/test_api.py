import asyncio
import dataclasses
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.api.context import Services
from proxy.auth.access_tokens import SIGNING_KEY_LIFETIME
from proxy.auth.authorization_server import AuthorizationServer
from proxy.bootstrap.api import (
    SharedServices,
    check_asking,
    history_policy,
    interface,
    keep_keys,
    limits,
    open_access,
    outbound_clients,
    read_secret,
    scraper_secret,
)
from proxy.bootstrap.edge import open_guard
from proxy.config import Settings, load_settings
from proxy.config.settings import SecretSource
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from tests.support.api import Client, services, serving
from tests.support.api import interface as whole_interface
from tests.support.audit import audit_context
from tests.support.auth import form, office
from tests.support.clock import ManualClock
from tests.support.examples import CONTACT
from tests.support.memory import MemoryStore
from tests.support.patience import PATIENCE
from tests.support.rawserver import RawServer, says, silent
from tests.support.stores import FailingStore
from tests.support.table import table
from tests.unit.net.test_outbound import BODY, whole


@asynccontextmanager
async def joined(
    folder: Any, metrics: Metrics, **environ: str
) -> AsyncIterator[tuple[Client, str]]:
    """An interface of those settings, a client of it, and a token."""
    async with whole_interface(folder) as here:
        await here.declare("contact", CONTACT)
        settings = load_settings(
            None, {f"DOMICILE__{name}": text for name, text in environ.items()}
        )
        made = interface(
            settings,
            here.realm,
            SharedServices(
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
    made = await service.clients.create("crm", "default")
    body = form(client_id=made.client.id, client_secret=made.secret)
    assert (await service.token(body, None, "192.0.2.1", audit_context()))["expires_in"] == 60
    assert service.audiences.first == "https://a.example"
    assert metrics.cell("domicile_token_requests_total", "issued").value == 1
    assert [line for line in lines() if "domicile init" in line]
    service.close()


async def test_with_a_client_nothing_is_said(settings, lines):
    store, keyset = MemoryStore(), {"default": Keyset.create("default")}
    service = await open_access(settings, store, keyset, ManualClock(), Metrics())
    await service.clients.create("crm", "default")
    service.close()
    said = len(lines())
    (await open_access(settings, store, keyset, ManualClock(), Metrics())).close()
    assert len(lines()) == said


async def signs_with_another(service: AuthorizationServer, before: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while service.keys.current.kid == before:  # noqa: ASYNC110  # the task under test tells nobody
            await asyncio.sleep(0.001)


async def test_keys_are_replaced_by_age_as_soon_as_the_store_takes_one(settings, lines):
    store, clock = FailingStore(MemoryStore()), ManualClock()
    service = await open_access(
        settings, store, {"default": Keyset.create("default")}, clock, Metrics()
    )
    before = service.keys.current.kid
    store.fail("put_notes", times=2)
    clock.advance(SIGNING_KEY_LIFETIME)
    task = asyncio.create_task(keep_keys(service, 0.001))
    await signs_with_another(service, before)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    service.close()
    assert before in service.keys.by_kid
    assert lines().count("the signing key of access tokens is due but could not be rotated") == 2


@pytest.fixture
async def here() -> AsyncIterator[Services]:
    async with office() as made:
        yield services(auth=made.service)


async def test_questions_are_counted_and_take_as_long_as_the_settings_allow(here):
    metrics, hurried = Metrics(), dataclasses.replace(here)
    settings = load_settings(None, {"DOMICILE__ACL__TIMEOUT": "50ms"})
    async with RawServer(says(whole())) as good, RawServer(silent()) as slow:
        async with outbound_clients(here, load_settings(None, {}), metrics, ManualClock()):
            assert here.acl is not None
            assert await here.acl.ask(good.url, "t", b"{}") == BODY
        async with outbound_clients(hurried, settings, metrics, ManualClock()):
            assert hurried.acl is not None
            with pytest.raises(VaultError) as caught:
                await hurried.acl.ask(slow.url, "t", b"{}")
    assert caught.value.code is Code.FILTER_ENDPOINT_LATE
    counted = {
        outcome: metrics.cell("domicile_acl_requests_total", outcome).value
        for outcome in ("answered", "late")
    }
    assert counted == {"answered": 1, "late": 1}


async def test_without_an_external_issuer_access_is_as_it_was(here):
    before = here.access
    async with outbound_clients(here, load_settings(None, {}), Metrics(), ManualClock()):
        assert here.access is before
    given = {"AUTH__ISSUER": "jwks:http://127.0.0.1:9/keys", "AUTH__ISSUER_NAME": "me"}
    async with outbound_clients(
        here,
        load_settings(None, {f"DOMICILE__{name}": text for name, text in given.items()}),
        Metrics(),
        ManualClock(),
    ):
        assert here.access is not before


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({"ACL__AUTHORITIES": "/nowhere.pem"}, "acl.authorities"),
        ({"AUTH__ISSUER_NAME": "https://a.example", "AUTH__ISSUER": "introspection:https://a.example/", "AUTH__ISSUER_AUTHORITIES": "/nowhere.pem"}, "auth.issuer_authorities"),
        ({"AUTH__ISSUER_NAME": "https://a.example", "AUTH__ISSUER": "introspection:https://a.example/", "AUTH__INTROSPECTION_CREDENTIALS": "env:NOWHERE"}, "auth.introspection_credentials"),
    ],
)  # fmt: skip
async def test_files_and_secrets_that_cannot_be_read_are_told(here, given, source):
    settings = load_settings(None, {f"DOMICILE__{name}": text for name, text in given.items()})
    with pytest.raises(VaultError) as checked:
        check_asking(settings)
    with pytest.raises(VaultError) as caught:
        async with outbound_clients(here, settings, Metrics(), ManualClock()):
            pass
    assert {error.value.code for error in (checked, caught)} == {Code.BAD_SETTINGS}
    assert [error.value.details[0].source for error in (checked, caught)] == [source] * 2


def test_a_secret_comes_from_its_place_without_the_end_of_the_line(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("id:s3cret\n")
    monkeypatch.setenv("THE_SECRET", " id:other ")
    assert read_secret(SecretSource("file", str(tmp_path / "secret")), "a.b") == "id:s3cret"
    assert read_secret(SecretSource("env", "THE_SECRET"), "a.b") == "id:other"


@pytest.mark.parametrize("content", [b"", b" \n", b"a\nb", b"\xff", b"x" * 4097])
def test_what_is_no_secret_is_told_with_its_setting_and_without_itself(tmp_path, content):
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(VaultError) as caught:
        read_secret(SecretSource("file", str(tmp_path / "secret")), "a.b")
    (detail,) = caught.value.details
    assert (caught.value.code, detail.source) == (Code.BAD_SETTINGS, "a.b")
    assert "xxx" not in detail.text


@table("place", [SecretSource("file", "/nowhere/at/all"), SecretSource("env", "NOWHERE_AT_ALL")])
def test_a_place_that_is_not_there_is_told(place):
    with pytest.raises(VaultError) as caught:
        read_secret(place, "a.b")
    assert place.locator in caught.value.details[0].text


def test_the_secret_of_scrapers_may_change_while_the_instance_runs(tmp_path):
    place = tmp_path / "token"
    settings = load_settings(None, {"DOMICILE__ADMIN__METRICS_TOKEN": f"file://{place}"})
    place.write_text("the first of two secrets\n")
    secret = scraper_secret(settings)
    assert secret() == "the first of two secrets"
    place.write_text("the second of two secrets\n")
    assert secret() == "the second of two secrets"
    for unfit in ("", "short"):
        place.write_text(unfit)
        assert secret() is None
    place.unlink()
    assert secret() is None
    assert scraper_secret(load_settings(None, {}))() is None


@pytest.mark.parametrize("content", [None, "", "too short"])
def test_a_secret_that_cannot_be_used_ends_the_start(tmp_path, content):
    if content is not None:
        (tmp_path / "token").write_text(content)
    settings = load_settings(
        None, {"DOMICILE__ADMIN__METRICS_TOKEN": f"file://{tmp_path / 'token'}"}
    )
    with pytest.raises(VaultError) as caught:
        scraper_secret(settings)
    assert caught.value.details[0].source == "admin.metrics_token"
