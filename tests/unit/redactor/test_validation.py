import datetime as dt
import time
from decimal import Decimal

import pytest

from proxy.model.schema import Value
from proxy.redactor.validation import (
    CHECKED_KINDS,
    FieldCheck,
    RelativeDay,
    in_words,
    linear_pattern,
    read_number,
    standard_number,
)
from tests.support.table import table

TODAY = RelativeDay(None)
ADULT = RelativeDay(None, -18)
BORN = FieldCheck("date", least=RelativeDay(dt.date(1900, 1, 1)), most=ADULT)
AGE = FieldCheck("number", least=Decimal(0), most=Decimal(150))
SHORT = FieldCheck("text", least=2, most=4)
NORDIC = FieldCheck("phone", regions=("SE", "NO"))
PLATE = FieldCheck("text", pattern="[A-Z]{3}[0-9]{3}")
ACCOUNT = FieldCheck("text", standards=("iban", "se.orgnr"))


@table(
    ("check", "good", "bad"),
    [
        (FieldCheck("email"), ["ann@example.com", "Ann.O'Hara+x@ex-ample.co.uk", "ü@exämple.de", "a@corp.local"],
         ["ann", "ann@example", "@example.com", "a b@example.com", "a@b@c.de", "ann@-x.com", "ann@x..de", "Ann <ann@x.de>", "a@" + "x" * 400 + ".de"]),
        (FieldCheck("phone"), ["070-174 06 05", "+46 (0)70-174 06 05", "+1 202 555 0123"], ["12", "n/a", "+46 1", "0" * 200, "+999 123456789"]),
        (NORDIC, ["070-174 06 05", "+47 21 49 50 00"], ["+1 202 555 0123", "+49 30 901820"]),
        (FieldCheck("date"), ["1980-02-29", "28.2.1980", "02/28/1980", "1980-02-28T10:20:30Z"], ["1981-02-29", "1980", "soon", "1980-02-28T25:00"]),
        (BORN, ["1980-02-28", "1900-01-01"], ["1899-12-31", "2999-01-01", "x", dt.datetime.now(dt.UTC).date().isoformat()]),
        (FieldCheck("card"), ["4111 1111 1111 1111", "4111111111111111", "3782-822463-10005"], ["4111 1111 1111 1112", "4111", "card", "1" * 60]),
        (FieldCheck("number"), ["42", "-1.5", "+0042", "1e3"], ["", "x", "1,5", "1.", "0x10", "1" * 101, "NaN", "٤٢"]),
        (AGE, ["0", "150", "1.5e2"], ["-1", "150.01", "x", "1e9999"]),
        (FieldCheck("uuid"), ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "x"]),
        (SHORT, ["ab", "åäöü", "🙂🙂"], ["a", "abcde"]),
        (PLATE, ["ABC123"], ["abc123", "ABC1234", "xABC123", "ABC123\n"]),
        (ACCOUNT, ["SE45 5000 0000 0583 9825 7466", "123456-7897"], ["SE45 5000 0000 0583 9825 7467", "x", "S" * 500]),
        (FieldCheck("text", standards=("se.personnummer",)), ["811228-9874", "19811228-9874"], ["811228-9875", "811328-9874"]),
    ],
)  # fmt: skip
def test_what_a_check_takes_and_what_it_refuses(check, good, bad):
    for text in good:
        assert check.fault(Value(text), "SE") == "", text
    for text in bad:
        reason = check.fault(Value(text), "SE")
        assert reason, text
        assert len(text) < 5 or text not in reason


@table("text", ["[1]", '{"a":1}', "true", "false"])
def test_a_check_takes_no_list_object_or_truth_value(text):
    assert SHORT.fault(Value(text, json=True), "SE") == "takes a text or a number alone"
    assert AGE.fault(Value("42", json=True), "SE") == ""


def test_a_day_and_a_month_that_may_be_exchanged_have_to_fit_both_ways():
    spring = FieldCheck("date", least=RelativeDay(dt.date(2020, 2, 1)))
    assert spring.fault(Value("02/03/2020"), "SE") == ""
    assert spring.fault(Value("03/01/2020"), "SE") == "is before 2020-02-01"
    assert spring.fault(Value("3.1.2020"), "SE") == "is before 2020-02-01"


@table(
    ("today", "years", "days", "day"),
    [
        (dt.date(2024, 2, 29), -18, 0, dt.date(2006, 2, 28)),
        (dt.date(2024, 2, 29), -4, 0, dt.date(2020, 2, 29)),
        (dt.date(2024, 2, 29), -124, 0, dt.date(1900, 2, 28)),
        (dt.date(2026, 11, 23), 1, 0, dt.date(2027, 11, 23)),
        (dt.date(2026, 12, 31), 0, 1, dt.date(2027, 1, 1)),
    ],
)
def test_a_day_counts_from_today(today, years, days, day):
    assert RelativeDay(None, years, days).on(today) == day
    assert RelativeDay(day, years, days).on(today) == day


def test_a_pattern_takes_time_in_proportion_to_the_value():
    started = time.process_time()
    assert FieldCheck("text", pattern="(a+)+").fault(Value("a" * 1_000_000 + "b"), "SE")
    assert FieldCheck("text", pattern="(.*)*x(.*)*y").fault(Value("x" * 100_000), "SE")
    assert time.process_time() - started < 1


@table("kind", CHECKED_KINDS)
def test_a_long_value_is_refused_in_no_time(kind):
    started = time.process_time()
    for text in ("1" * 2_000_000, "a@" * 1_000_000, " " * 2_000_000):
        assert FieldCheck(kind).fault(Value(text), "SE")
    assert time.process_time() - started < 1


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "(", "(x{1000}){1000}"])
def test_a_pattern_that_re2_does_not_take_is_none(pattern, capfd):
    with pytest.raises(ValueError, match=r"\w"):
        linear_pattern(pattern)
    assert "Error parsing" not in capfd.readouterr().err


@table("name", ["nothing", "se.nothing", "xx.vat", "util"])
def test_a_number_that_the_library_does_not_know_is_none(name):
    with pytest.raises(ValueError, match=name):
        standard_number(name)


def test_numbers_are_read_as_people_and_json_write_them():
    assert read_number(" 12.50 ") == Decimal("12.5")
    assert read_number("twelve") is None


def test_a_check_in_words():
    assert in_words(NORDIC) == "phone, of SE or NO"
    assert in_words(BORN) == "date, from 1900-01-01, to today-18y"
    assert in_words(SHORT) == "text, from 2 characters, to 4 characters"
    assert in_words(AGE) == "number, from 0, to 150"
    assert in_words(ACCOUNT) == "iban or se.orgnr"
    assert in_words(PLATE) == "text, of the pattern [A-Z]{3}[0-9]{3}"
    assert in_words(FieldCheck("date", most=TODAY)) == "date, to today"
