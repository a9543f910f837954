import re

from proxy.telemetry.metric_table import METRICS
from tests.support.table import table


@table("name, declared", METRICS.items())
def test_names_follow_the_conventions_of_prometheus(name, declared):
    assert re.fullmatch(r"domicile_[a-z_]+", name)
    assert (declared.kind == "counter") == name.endswith("_total")
    assert (declared.kind == "histogram") == bool(declared.bounds)
    assert list(declared.bounds) == sorted(declared.bounds)
    assert declared.help.endswith(".")
