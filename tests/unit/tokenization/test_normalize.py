import datetime as dt
import subprocess
import sys

import pytest

from proxy.tokenization.normalize import DATE_IN_TEXT, FIELD_KINDS, normalize, read_date
from tests.support.table import table


@table(
    ("kind", "spellings", "normal"),
    [
        ("text", ["Ann Lee", " Ann Lee\n", "\u00a0Ann Lee", "Ａｎｎ Lee"], "Ann Lee"),
        ("name", ["Å", "A\u030a", "\u212b"], "Å"),
        ("name", ["ﬁ"], "fi"),
        ("email", ["Ann@Example.COM", " ann@example.com "], "ann@example.com"),
        ("email", ["STRASSE@x.de", "straße@x.de"], "strasse@x.de"),
        (
            "phone",
            [
                "070-123 45 67", "+46 70 123 45 67", "+46 (0)70 1234567", "0046701234567",
                "\u202a+46701234567\u202c",
            ],
            "+46701234567",
        ),
        ("phone", ["070-1234567 ext. 12", "tel:+46-70-1234567;ext=12"], "+46701234567#12"),
        ("phone", ["n/a", " na"], "na"),
        ("date", ["1980-02-28", "28.2.1980", "02/28/1980", " 19800228 "], "1980-02-28"),
        ("date", ["yesterday"], "yesterday"),
        (
            "card", ["4111 1111 1111 1111", "4111-1111-1111-1111", "4111111111111111"],
            "4111111111111111",
        ),
        ("card", ["no card"], "no card"),
        ("number", ["4711", "４７１１"], "4711"),
        ("uuid", ["6BA7B810-9DAD-11D1-80B4-00C04FD430C8"], "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    ],
)  # fmt: skip
def test_spellings_of_one_value_come_to_one_form(kind, spellings, normal):
    assert {normalize(kind, text, "se") for text in spellings} == {normal}


@table("kind", ["text", "name", "number"])
def test_letter_case_and_inner_space_are_part_of_a_text(kind):
    assert (
        len({normalize(kind, text) for text in ("ann lee", "Ann lee", "Ann  lee", "Annlee")}) == 4
    )


def test_the_region_decides_what_a_national_number_is():
    forms = {
        region: normalize("phone", "(212) 555-0123", region) for region in ("us", "US", "se", "")
    }
    assert forms == {
        "us": "+12125550123",
        "US": "+12125550123",
        "se": "+462125550123",
        "": "2125550123",
    }


def test_every_kind_is_described_and_takes_the_empty_text():
    for kind, about in FIELD_KINDS.items():
        assert len(about) > 20
        assert normalize(kind, "") == normalize(kind, "  ") == ""


def test_an_unknown_kind_is_a_mistake_of_the_program():
    with pytest.raises(KeyError):
        normalize("colour", "red")


def test_numbers_are_looked_into_only_where_a_kind_needs_it():
    check = "import sys, proxy.tokenization; sys.exit('phonenumbers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


DAY = dt.date(1980, 2, 28)


@table(
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


@table(
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


@table(
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
