import pytest

from proxy.offload import SMALL
from proxy.vault.collection import LONG
from proxy.vault.records.opening import open_records, open_together
from proxy.vault.records.repository import Records
from tests.support.exchanges import Desk, desk


@pytest.fixture
async def office() -> Desk:
    one = await desk(
        fields=(
            "name: {kind: name, find: [partial]}",
            "email: {kind: email, token: {shape: email, same: true}}",
            'tags: {kind: text, at: "$.tags[*]"}',
        )
    )
    for number in range(1, 21):
        await one.create({"name": f"Ann {number}", "tags": ["x", "y"][: number % 3]}, number)
    return one


async def test_rows_that_open_together_are_the_records_that_each_is(office: Desk) -> None:
    records = Records(office.people)
    rows = await office.store.scan(office.people.table, 0, 100)
    assert len(rows) == 20
    assert None not in open_together(records, rows, named=True)
    assert await open_records(records, rows) == [records.open(row) for row in rows]


async def test_a_row_under_a_key_of_another_is_told_and_left_out(office: Desk) -> None:
    records = Records(office.people)
    rows = await office.store.scan(office.people.table, 0, 100)
    rows[3] = rows[3]._replace(key=rows[4].key)
    rows[7] = rows[7]._replace(body=rows[8].body)
    opened = await open_records(records, rows)
    assert [one.key for one in opened] == [str(n) for n in range(1, 21) if n not in (4, 8)]
    assert (office.events["tampered"], office.events["unopenable"]) == (1, 1)


async def test_long_rows_and_records_of_the_interface_are_opened_one_by_one(office: Desk) -> None:
    await office.create({"name": "Bo", "tags": ["z" * SMALL] * (LONG // SMALL + 1)}, 21)
    records = Records(office.people)
    rows = await office.store.scan(office.people.table, 0, 100)
    assert open_together(records, rows, named=False) == [None] * 21
    assert [one.key for one in await open_records(records, rows)][-1] == "21"
