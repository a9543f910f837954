from proxy.api.openapi.baits import DESCRIBED
from proxy.telemetry.metrics import METRICS


def test_the_metric_that_is_named_is_there():
    assert "`domicile_alarms_total`" in DESCRIBED["put_bait"].text
    assert "domicile_alarms_total" in METRICS
