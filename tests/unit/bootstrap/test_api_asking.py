import dataclasses
from collections.abc import AsyncIterator

import pytest

from proxy.api.context import Services
from proxy.bootstrap.api import check_asking, outbound_clients
from proxy.clock import ManualClock
from proxy.config import load_settings
from proxy.errors import Code, VaultError
from proxy.telemetry.metrics import Metrics
from tests.support.api import services
from tests.support.auth import office
from tests.support.rawserver import RawServer, says, silent
from tests.unit.net.test_outbound_acl_client import BODY, whole


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
