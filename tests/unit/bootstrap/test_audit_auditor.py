import pytest

from proxy.audit.chain import CHAIN_START
from proxy.audit.verify import verify_log
from proxy.bootstrap.audit import auditor, open_audit
from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.storage import open_environments, open_with_key
from proxy.clock import system_clock
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.telemetry.metrics import Metrics


@pytest.fixture
def settings(tmp_path) -> Settings:
    return load_settings(
        None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "data")}
    )


async def test_without_a_vault_there_is_nothing_to_look_at(settings):
    with pytest.raises(VaultError) as raised:
        await auditor(settings)
    assert raised.value.code is Code.BAD_STORE


async def test_the_log_is_looked_at_beside_the_instance_that_writes_it_and_after_it(settings):
    await prepare_instance(settings)
    assert (await auditor(settings)).checkpoint.checkpoint == CHAIN_START
    store, _ = await open_with_key(settings)
    _, keysets = await open_environments(settings, store)
    audit = await open_audit(settings, store, keysets["default"], system_clock, Metrics())
    await audit.log.begin()
    beside = await auditor(settings)
    assert beside.checkpoint.checkpoint.n == 1
    assert beside.record_id("default", "p", "1") == audit.services.record_id("default", "p", "1")
    assert verify_log(settings.audit.folder, beside.mac, beside.checkpoint).faults == []
    await audit.close()
    await store.close()
    after = await auditor(settings)
    assert after.checkpoint.checkpoint.n == 2
    assert verify_log(settings.audit.folder, after.mac, after.checkpoint).faults == []
