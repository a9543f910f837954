import pytest

from proxy.composition.asking import acl_client
from proxy.config import load
from proxy.errors import Code, VaultError
from proxy.telemetry.metrics import Metrics
from tests.support.rawserver import RawServer, says, silent
from tests.unit.web.test_acl_client import BODY, whole


async def test_questions_are_counted_and_take_as_long_as_the_settings_allow():
    metrics = Metrics()
    patient = acl_client(load(None, {}), metrics)
    hasty = acl_client(load(None, {"DOMICILE__ACL__TIMEOUT": "50ms"}), metrics)
    async with patient, hasty, RawServer(says(whole())) as good, RawServer(silent()) as slow:
        assert await patient.ask(good.url, "t", b"{}") == BODY
        with pytest.raises(VaultError) as caught:
            await hasty.ask(slow.url, "t", b"{}")
    assert caught.value.code is Code.FILTER_ENDPOINT_LATE
    assert {outcome: metrics.cell("domicile_acl_requests_total", outcome).value for outcome in ("answered", "late")} == {
        "answered": 1, "late": 1,
    }  # fmt: skip


def test_authorities_that_cannot_be_read_are_told(tmp_path):
    with pytest.raises(VaultError) as caught:
        acl_client(load(None, {"DOMICILE__ACL__AUTHORITIES": str(tmp_path / "none.pem")}), Metrics())
    assert (caught.value.code, caught.value.details[0].source) == (Code.BAD_SETTINGS, "acl.authorities")
