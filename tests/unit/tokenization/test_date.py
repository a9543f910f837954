import datetime as dt
from typing import Any

import pytest

from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.normalize import read_date
from tests.support.shapes import bound
from tests.support.table import table


def tokens(value: str, **options: Any) -> list[str]:
    tokenizer = bound("date", "date", **options)
    return [tokenizer.mint(Value(value), 1, 1).text for _ in range(200)]


def test_days_come_from_the_whole_range_and_not_beyond():
    days = [
        dt.date.fromisoformat(token)
        for token in tokens("1980-02-28", **{"from": "2020-01-01", "to": "2020-12-31"})
    ]
    assert all(day.year == 2020 for day in days)
    assert len({day.month for day in days}) == 12


def test_midnight_stays_and_any_other_time_does_not():
    assert {token[10:] for token in tokens("1980-02-28T00:00:00.000Z")} == {"T00:00:00.000Z"}
    times = {token[10:] for token in tokens("1980-02-28 10:20:30+02:00")}
    assert len(times) > 150
    assert {time[9:] for time in times} == {"+02:00"}


def test_a_day_in_doubt_is_one_whichever_number_is_the_month():
    for token in tokens("01/02/1980"):
        month, day, _ = map(int, token.split("/"))
        assert month <= 12
        assert day <= 12


def test_one_day_written_in_two_manners_has_one_same_token():
    tokenizer = bound("date", "date", same=True)
    spellings = ("1980-02-28", "28.2.1980", "02/28/1980")
    dates = [read_date(tokenizer.mint(Value(text), 1, 1).text) for text in spellings]
    assert len({date.day for date in dates if date is not None}) == 1
    assert None not in dates


@table(
    ("option", "bad"),
    [("from", "yesterday"), ("to", 7), ("to", "2020-13-01"), ("to", "1940-12-01")],
)
def test_a_range_that_is_none_is_refused(option, bad):
    with pytest.raises(ValueError, match=option):
        make_shape("date", {option: bad})


def test_a_range_may_be_given_as_dates_and_tells_the_capacity():
    assert (
        make_shape("date", {"from": dt.date(2020, 1, 1), "to": dt.date(2020, 12, 31)}).capacity()
        == 366
    )
    assert make_shape("date", {}).capacity() == 21_915
