import ipaddress

import pytest

from proxy.edge.limits import LimitedError, MissLimit, Quotas, address_group
from proxy.edge.rate_limit import RatePolicy, Rates
from proxy.errors import Code
from proxy.net.client_address import Trusted


def test_what_is_off_asks_nobody():
    assert (Quotas().client("a"), Quotas().caller("192.0.2.1")) == (None, None)


@pytest.mark.usefixtures("limits_clock")
def test_too_many_are_refused_with_everything_a_caller_needs_to_know():
    told: list[str] = []
    quotas = Quotas(credential=Rates(RatePolicy("credential", 1, 1)))
    assert quotas.client("a", told.append) is not None
    with pytest.raises(LimitedError) as caught:
        quotas.client("a", told.append)
    error = caught.value
    assert (error.code, error.retry_after, told) == (Code.TOO_MANY_REQUESTS, 1, ["credential"])
    assert error.limit == {
        "RateLimit-Policy": '"credential";q=1;w=1',
        "RateLimit": '"credential";r=0;t=1',
    }


@pytest.mark.usefixtures("limits_clock")
def test_an_address_is_a_machine_or_a_household():
    assert address_group("192.0.2.1") == "192.0.2.1"
    assert address_group("2001:db8::1") == address_group("2001:db8::ffff%eth0") == "2001:db8::/64"
    quotas = Quotas(address=Rates(RatePolicy("address", 1, 1)))
    quotas.caller("2001:db8::1")
    with pytest.raises(LimitedError):
        quotas.caller("2001:db8::2")
    quotas.caller("2001:db8:0:1::1")


@pytest.mark.parametrize(
    ("peer", "host"), [("192.0.2.1", "192.0.2.1"), ("10.0.0.1", "198.51.100.7"), ("", "")]
)
def test_only_trusted_proxies_tell_of_somebody_else(peer, host):
    quotas = Quotas(trusted=Trusted((ipaddress.ip_network("10.0.0.0/8"),)))
    assert quotas.host(peer, ((b"x-forwarded-FOR", b"198.51.100.7"), (b"A", b"b"))) == host


@pytest.mark.usefixtures("limits_clock")
def test_an_address_that_keeps_missing_raises_one_alarm_and_is_refused():
    told, alarms = list[str](), list[tuple[str, str]]()
    rates = Rates(RatePolicy("address", 1, 2))
    misses = MissLimit(
        rates, Quotas(), told.append, lambda endpoint, label: alarms.append((endpoint, label))
    )
    group = misses.admit("192.0.2.1", ())
    misses.count(group, "app", "GET /p")
    assert alarms == []
    misses.count(misses.admit("192.0.2.1", ()), "app", "GET /p")
    assert alarms == [("app", "GET /p")]
    with pytest.raises(LimitedError, match="More than 1 searches without a hit a second") as caught:
        misses.admit("192.0.2.1", ())
    assert (caught.value.retry_after, told) == (1, ["misses"])
    misses.admit("192.0.2.2", ())
