from proxy.errors import Code, Detail, VaultError
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload

FAULT = VaultError(
    Code.BAD_RULES, "One fault.", (Detail("/etc/rules/crm.yaml:3:1", "unknown key"),)
)


async def test_a_failure_is_told_until_a_good_version_clears_it():
    metrics = Metrics()
    state = Reload(metrics, "rules")
    assert (await state.check(), metrics.cell("domicile_reload_failed", "rules").value) == (None, 0)
    state.failed(FAULT)
    assert await state.check() == "One fault. /etc/rules/crm.yaml:3:1: unknown key"
    assert metrics.cell("domicile_reload_failed", "rules").value == 1
    state.failed(VaultError(Code.VAULT_DOWN, "The vault is down."))
    assert await state.check() == "The vault is down."
    state.succeeded()
    assert (await state.check(), metrics.cell("domicile_reload_failed", "rules").value) == (None, 0)


async def test_places_of_files_are_not_told_where_another_sentence_is_given():
    state = Reload(Metrics(), "policies", "The log names the place.")
    state.failed(FAULT)
    assert await state.check() == "The log names the place."
