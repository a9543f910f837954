import dataclasses

from proxy.model.record import DEFAULTS, RecordLimits


def test_the_defaults_are_those_of_the_decisions():
    assert (DEFAULTS.find_default, DEFAULTS.find_maximum, DEFAULTS.batch) == (100, 1000, 100)
    assert (DEFAULTS.string, DEFAULTS.key, DEFAULTS.search, DEFAULTS.groups) == (
        256,
        128,
        (3, 200),
        100,
    )


def test_each_limit_can_be_set_alone():
    assert dataclasses.replace(DEFAULTS, batch=5) == RecordLimits(batch=5)
