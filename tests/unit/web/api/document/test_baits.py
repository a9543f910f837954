from proxy.telemetry.metrics import METRICS
from proxy.web.api.document.baits import DESCRIBED


def test_the_metric_that_is_named_is_there():
    assert "`domicile_alarms_total`" in DESCRIBED["put_bait"].text
    assert "domicile_alarms_total" in METRICS
