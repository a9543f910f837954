import asyncio
import random
from pathlib import Path

import pytest

from proxy.edge.geoip import Countries, read_database
from proxy.errors import Code, VaultError
from tests.support.countries import AMERICAN, AMERICAN6, SWEDISH, SWEDISH6, flat, nested, write
from tests.support.patience import PATIENCE


def test_the_country_of_an_address_is_where_it_is_used(tmp_path: Path):
    database = read_database(write(tmp_path / "c.mmdb"))
    found = [
        database.country(host)
        for host in (SWEDISH, SWEDISH6, AMERICAN, AMERICAN6, "9.9.9.9", "2a01::1")
    ]
    assert found == ["se", "se", "us", "us", None, None]


def test_where_a_block_is_registered_does_not_count(tmp_path: Path):
    record = {"registered_country": {"iso_code": "SE"}, "represented_country": {"iso_code": "SE"}}
    path = write(tmp_path / "c.mmdb", {"81.224.0.0/12": record, "8.8.8.0/24": nested("US")})
    assert read_database(path).country(SWEDISH) is None


def test_databases_without_nesting_are_read_too(tmp_path: Path):
    database = read_database(write(tmp_path / "c.mmdb", {"81.224.0.0/12": flat("SE")}))
    assert database.country(SWEDISH) == "se"


def test_a_database_without_ipv6_knows_no_such_address(tmp_path: Path):
    database = read_database(write(tmp_path / "c.mmdb", {"81.224.0.0/12": nested("SE")}))
    assert (database.country(SWEDISH), database.country(SWEDISH6)) == ("se", None)


@pytest.mark.parametrize(
    ("record", "country"),
    [
        ({"country": {"iso_code": 7}}, None), ({"country": "SE"}, None), ({"country": {}}, None),
        ("SE", None),
    ],
)  # fmt: skip
def test_records_of_another_shape_tell_nothing(tmp_path: Path, record, country):
    path = write(tmp_path / "c.mmdb", {"81.224.0.0/12": record, "8.8.8.0/24": nested("US")})
    assert read_database(path).country(SWEDISH) is country


def fault(path: Path) -> str:
    with pytest.raises(VaultError) as caught:
        read_database(path)
    assert caught.value.code is Code.BAD_SETTINGS
    assert caught.value.details[0].source == "firewall.country_database"
    assert str(path) in caught.value.message
    return caught.value.message


def test_what_is_no_such_file_is_refused_with_a_sentence(tmp_path: Path):
    assert "is not there" in fault(tmp_path / "none.mmdb")
    assert "is not a file" in fault(tmp_path)
    (tmp_path / "text").write_text("country,se\n")
    assert "is no whole database" in fault(tmp_path / "text")
    (tmp_path / "empty").write_bytes(b"")
    assert "is no whole database" in fault(tmp_path / "empty")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "c.mmdb")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "let this user read it" in fault(path)


def test_a_huge_file_is_refused_unread(tmp_path: Path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**30 + 1)
    assert "larger than 1 GiB" in fault(tmp_path / "huge")


def test_a_database_of_networks_is_refused(tmp_path: Path):
    record = {"autonomous_system_number": 64500, "autonomous_system_organization": "Example"}
    path = write(
        tmp_path / "asn.mmdb", {"81.224.0.0/12": record, "8.8.8.0/24": record}, kind="GeoLite2-ASN"
    )
    assert "tells no countries" in fault(path)


def test_every_cut_and_every_damage_is_told_or_harmless(tmp_path: Path):
    whole, chance = write(tmp_path / "c.mmdb").read_bytes(), random.Random(20)
    path = tmp_path / "damaged.mmdb"
    refused = 0
    for _ in range(300):
        changed = bytearray(whole[: chance.choice((len(whole), chance.randrange(len(whole))))])
        for _ in range(chance.choice((1, 3, 40))):
            if changed:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
        path.write_bytes(changed)
        try:
            read_database(path).country(SWEDISH)
        except VaultError as error:
            assert error.code is Code.BAD_SETTINGS  # noqa: PT017  # either outcome is right
            refused += 1
    assert refused > 100


async def test_a_new_file_takes_effect_and_a_broken_one_does_not(tmp_path: Path):
    path, failures = write(tmp_path / "c.mmdb"), []
    followed = Countries(path, lambda: failures.append(1))
    first = followed.database
    assert (first.country(AMERICAN), await followed.state.check()) == ("us", None)
    assert 0 <= followed.age < 60
    path.write_bytes(path.read_bytes()[:100])
    assert not await followed.reload()
    assert followed.database is first
    assert len(failures) == 1
    assert "is no whole database" in (await followed.state.check() or "")
    write(path, {"8.8.8.0/24": nested("SE")})
    assert await followed.reload()
    assert (followed.database.country(AMERICAN), await followed.state.check()) == ("se", None)


async def test_the_file_is_followed(tmp_path: Path):
    path, failed = write(tmp_path / "c.mmdb"), asyncio.Event()
    followed = Countries(path, failed.set)
    watching = asyncio.create_task(followed.watch(0.01))
    try:
        async with asyncio.timeout(PATIENCE):
            path.unlink()
            await failed.wait()
            write(path, {"8.8.8.0/24": nested("SE")})
            while followed.database.country(AMERICAN) != "se":  # noqa: ASYNC110  # another task brings it about
                await asyncio.sleep(0.01)
    finally:
        watching.cancel()
    assert await followed.state.check() is None
