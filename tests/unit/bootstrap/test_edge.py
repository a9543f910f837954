import asyncio

import pytest

from proxy.bootstrap.edge import OpenFiles, check_firewall, open_guard, raise_file_limit
from proxy.config import load_settings
from proxy.edge.firewall import Mode
from proxy.edge.rate_limit import RatePolicy
from proxy.errors import Code, VaultError
from proxy.telemetry.metrics import Metrics
from tests.support.countries import AMERICAN, SWEDISH, write
from tests.support.table import table


def settings(**environ: str):
    return load_settings(None, {f"DOMICILE__{name}": text for name, text in environ.items()})


def test_by_default_nobody_is_looked_at():
    guard = open_guard(settings(), Metrics())
    assert (guard.firewall.mode, guard.states(), guard.work()) == (Mode.OFF, [], [])


async def test_the_settings_hold(tmp_path):
    metrics, path = Metrics(), write(tmp_path / "c.mmdb")
    given = {
        "COUNTRY": "se",
        "FIREWALL__MODE": "block",
        "FIREWALL__COUNTRY_DATABASE": str(path),
        "FIREWALL__ALLOW": "10.0.0.0/8",
    }
    guard = open_guard(settings(**given), metrics)
    assert [
        guard.firewall.outside(host, (), False) for host in (SWEDISH, AMERICAN, "10.1.1.1")
    ] == [False, True, False]
    guard.screened("proxy")("blocked")
    text = metrics.render().decode()
    assert 'domicile_firewall_requests_total{listener="proxy",outcome="blocked"} 1.0' in text
    assert "domicile_firewall_database_age_seconds" in text
    path.write_bytes(b"broken")
    await guard.reload()
    assert "domicile_firewall_database_failures_total 1.0" in metrics.render().decode()
    assert 'domicile_reload_failed{what="countries"} 1.0' in metrics.render().decode()
    assert "is no whole database" in (await guard.states()[0].check() or "")
    (work,) = guard.work()
    task = asyncio.create_task(work)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_country_is_that_of_the_instance(tmp_path):
    path = str(write(tmp_path / "c.mmdb"))
    guard = open_guard(
        settings(COUNTRY="us", FIREWALL__MODE="mask", FIREWALL__COUNTRY_DATABASE=path), Metrics()
    )
    assert [guard.firewall.outside(host, (), False) for host in (SWEDISH, AMERICAN)] == [
        True,
        False,
    ]


def test_a_database_that_cannot_be_used_is_a_fault_of_the_settings(tmp_path):
    with pytest.raises(VaultError) as caught:
        open_guard(settings(FIREWALL__COUNTRY_DATABASE=str(tmp_path / "none.mmdb")), Metrics())
    assert caught.value.code is Code.BAD_SETTINGS


def test_a_check_tells_how_old_it_is(tmp_path):
    path = write(tmp_path / "c.mmdb")
    assert check_firewall(path) == f"{path}, built 0 days ago"


def test_limits_are_those_of_the_settings():
    given = {
        "REQUESTS_PER_SECOND": "10", "ADDRESS_REQUESTS_PER_SECOND": "20", "BURST": "3",
        "CONCURRENT": "5", "UPLOADS": "4", "ADDRESS_CONNECTIONS": "7",
    }  # fmt: skip
    guard = open_guard(
        settings(**{f"LIMITS__{name}": text for name, text in given.items()}), Metrics()
    )
    quotas, first = guard.quotas, guard.first
    assert quotas.credential is not None
    assert quotas.address is not None
    assert quotas.concurrent is not None
    assert quotas.uploads is not None
    assert [quotas.credential.policy, quotas.address.policy] == [
        RatePolicy("credential", 10, 3),
        RatePolicy("address", 20, 3),
    ]
    assert (quotas.concurrent._most, quotas.uploads._most, first._of_address) == (5, 4, 7)


def test_a_limit_of_nothing_is_none():
    guard = open_guard(settings(LIMITS__REQUESTS_PER_SECOND="0"), Metrics())
    assert (guard.quotas.credential, guard.quotas.address) == (None, None)


def test_connections_are_as_many_as_descriptors_allow_and_an_address_has_half_of_them(monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 1024))
    guard = open_guard(settings(), Metrics())
    assert (guard.first._most, guard.first._of_address, guard.first.backlog) == (448, 224, 128)
    guard = open_guard(
        settings(LIMITS__CONNECTIONS="100", LIMITS__ADDRESS_CONNECTIONS="0"), Metrics()
    )
    assert (guard.first._most, guard.first._of_address) == (100, 0)


def test_a_low_limit_of_open_files_is_told(monkeypatch, lines):
    for limit in (1024, 256):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
        open_guard(settings(), Metrics())
    (line,) = lines()
    assert (line["level"], line["count"]) == ("warning", 16)
    assert "raise the limit of open files" in line["event"]


@table(
    ("limit", "callers"), [(128, 16), (1024, 448), (65_536, 57_024), (10**9, 57_024), (-1, 57_024)]
)
def test_descriptors_are_kept_back_from_callers(limit, callers):
    files = OpenFiles.of(limit, 256)
    assert files.callers == callers
    assert limit < 200 or limit - callers - 2 * files.backlog >= 64 or limit < 0


def test_the_limit_of_open_files_is_raised_towards_what_is_allowed(monkeypatch):
    given: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: given.append(limits))
    for soft, hard, raised in (
        (1024, 4096, 4096),
        (1024, -1, 65_536),
        (1024, 10**6, 65_536),
        (4096, 4096, 4096),
        (10**6, 10**6, 10**6),
    ):
        monkeypatch.setattr("resource.getrlimit", lambda _, limits=(soft, hard): limits)
        assert raise_file_limit() == raised
    assert given == [(4096, 4096), (65_536, -1), (65_536, 10**6)]
