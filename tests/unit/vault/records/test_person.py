"""Which records have a value of somebody."""

import pytest

from proxy.vault.proxied.binding import bind
from proxy.vault.proxied.staging import stage_creates
from proxy.vault.records.person import holding
from proxy.vault.records.repository import Records
from tests.support.vaults import Bench, draft, make_bench

ANN = {
    "name": "Ann Lind",
    "email": "Ann@Example.com",
    "phone": "+46 70 123 45 67",
    "born": "1987-04-12",
}


async def bench() -> Bench:
    made = await make_bench()
    people = [
        draft(**ANN, tags=["a", "ann@example.com"]),
        draft(name="ann@example.com", phone="070-123 45 67"),
        draft(name="Annika Lind", email="annika@example.com", tags=["4612"]),
    ]
    for key, one in enumerate(people):
        made.clock.advance(1)
        (held,) = await stage_creates(made.people, [one], [None])
        if key != 1:
            await bind(made.people, [(held, str(key))])
    return made


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("ann@EXAMPLE.com", {"0": ("email", "tags")}),
        ("0701234567", {"0": ("phone",)}),
        ("12.4.1987", {"0": ("born",)}),
        ("Ann Lind", {"0": ("name",)}),
        ("4612", {"2": ("tags",)}),
        ("Ann", {}),
        ("Lind", {}),
        ("@", {}),
        ("%", {}),
    ],
)
async def test_a_value_is_found_in_every_field_that_has_it(
    value: str, found: dict[str, tuple[str, ...]]
) -> None:
    made = await bench()
    walk = await holding(Records(made.people), value, 0, 100)
    # what waits for the answer to its create is nobody's record yet
    assert {one.record.key: one.fields for one in walk.holders} == found
    assert (walk.looked, walk.unreadable, walk.last) == (2, 0, None)


async def test_a_walk_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.vault.records.person._ROWS", 1)
    made = await bench()
    first = await holding(Records(made.people), "annika@example.com", 0, 1)
    assert (first.holders, first.looked) == ([], 1)
    assert first.last is not None
    rest = await holding(Records(made.people), "annika@example.com", first.last, 10)
    assert ([one.record.key for one in rest.holders], rest.last) == (["2"], None)
