import datetime as dt

import pytest

from proxy.tokenization.normalize import DATE_IN_TEXT, read_date

DAY = dt.date(1980, 2, 28)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("1980-02-28", "1980-02-28"),
        ("1980/2/28", "1980-02-28"),
        ("1980.02.28", "1980-02-28"),
        ("19800228", "1980-02-28"),
        ("28.02.1980", "1980-02-28"),
        ("28.2.1980", "1980-02-28"),
        ("02/28/1980", "1980-02-28"),
        ("28/02/1980", "1980-02-28"),
        ("28-2-1980", "1980-02-28"),
        ("1980-02-28T10:20", "1980-02-28T10:20"),
        ("1980-02-28 10:20:30,5", "1980-02-28T10:20:30.5"),
        ("1980-02-28T10:20:30.123456Z", "1980-02-28T10:20:30.123456Z"),
        ("28.2.1980 10:20:30+0200", "1980-02-28T10:20:30+0200"),
    ],
)
def test_dates_are_read_and_written_again_as_they_were(text, normal):
    found = read_date(text)
    assert found is not None
    assert (found.day, found.normal) == (DAY, normal)
    assert found.spell(DAY) + found.time + found.zone == text
    assert DATE_IN_TEXT.fullmatch(text)


@pytest.mark.parametrize(
    ("text", "normal"),
    [("01/02/1980", "01/02/1980"), ("1-2-1980", "01-02-1980"), ("12/12/1980", "12/12/1980")],
)
def test_where_day_and_month_are_in_doubt_the_normal_form_does_not_decide(text, normal):
    found = read_date(text)
    assert found is not None
    assert found.either
    assert found.normal == normal


def test_a_dotted_date_is_never_in_doubt():
    found = read_date("01.02.1980")
    assert found is not None
    assert found.day == dt.date(1980, 2, 1)
    assert not found.either


@pytest.mark.parametrize(
    "text",
    ["", "1980", "1980-02", "1980-02-30", "1981-02-29", "0000-01-01", "13/13/1980", "28.2.80", "1980-02/28", "1980-02-28Z",
     "1980-02-28T24:00", "1980-02-28T10:60", "1980-02-28T10", " 1980-02-28", "1980-02-28\n", "198002281", "١٩٨٠-٠٢-٢٨", "28 Feb 1980"],
)  # fmt: skip
def test_anything_else_is_no_date(text):
    assert read_date(text) is None


def test_another_day_keeps_the_manner():
    found = read_date("1.2.1980")
    assert found is not None
    assert found.spell(dt.date(1999, 12, 31)) == "31.12.1999"
    padded = read_date("01.02.1980")
    assert padded is not None
    assert padded.spell(dt.date(1999, 3, 4)) == "04.03.1999"
