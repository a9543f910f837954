import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor.shown_dates import language_of, shown_like
from tests.support.table import table

TOKEN, VALUE = "1984-03-02", "1931-12-21"


@table(
    ("shown", "value"),
    [
        ("1984-03-02", "1931-12-21"),
        ("1984/3/2", "1931/12/21"),
        ("02.03.1984", "21.12.1931"),
        ("2. 3. 1984", "21. 12. 1931"),
        ("3/2/1984", "12/21/1931"),
        ("02/03/1984", "21/12/1931"),
        ("02.03.84", "21.12.1931"),
        ("March 2, 1984", "December 21, 1931"),
        ("02 Mar 1984", "21 Dec 1931"),
        ("2 MAR 1984", "21 DEC 1931"),
        ("Mar. 2, 1984", "Dec. 21, 1931"),
        ("2nd March 1984", "21st December 1931"),
        ("Friday, March 2nd, 1984", "Monday, December 21st, 1931"),
        ("Fri Mar 02 1984", "Mon Dec 21 1931"),
        ("1984 March 2", "1931 December 21"),
    ],
)
def test_a_date_is_written_as_the_page_writes_its_token(shown, value):
    assert shown_like(shown, TOKEN, VALUE) == value


@table(
    "shown",
    [
        "", "1984", "1984-03", "1984-03-03", "1985-03-02", "2 mei 1984", "2 May 1984", "2 de March 1984", "March 1984",
        "1984-03-02 10:00", "age 41", "born 1984-03-02", "1984-03-02 1984-03-02", "Monday, March 2, 1984",
        "2 March April 1984", "x" * 100,
    ],
)  # fmt: skip
def test_what_shows_another_day_or_more_than_a_day_is_none(shown):
    assert shown_like(shown, TOKEN, VALUE) is None


@table(
    ("shown", "language", "value"),
    [
        ("2. März 1984", "", "21. Dezember 1931"),
        ("Freitag, 2. März 1984", "", "Montag, 21. Dezember 1931"),
        ("Fr, 2. März 1984", "", "Mo, 21. Dezember 1931"),
        ("02. Mär. 1984", "", "21. Dez. 1931"),
        ("2 mars 1984", "", "21 décembre 1931"),
        ("2 mars 1984", "sv", "21 december 1931"),
        ("vendredi 2 mars 1984", "", "lundi 21 décembre 1931"),
        ("2 de marzo de 1984", "", "21 de diciembre de 1931"),
        ("viernes, 2 de marzo de 1984", "es", "lunes, 21 de diciembre de 1931"),
        ("2 marzo 1984", "it", "21 dicembre 1931"),
        ("venerdì 2 marzo 1984", "", "lunedì 21 dicembre 1931"),
        ("2 marca 1984", "", "21 grudnia 1931"),
        ("2 maart 1984", "", "21 december 1931"),
        ("vrijdag 2 mrt 1984", "", "maandag 21 dec 1931"),
        ("2 DE MARÇO DE 1984", "", "21 DE DEZEMBRO DE 1931"),
        ("den 2 mars 1984", "", "den 21 december 1931"),
        ("fredag den 2. marts 1984", "", "mandag den 21. december 1931"),
        ("2 Mar 1984", "", "21 Dec 1931"),
        ("2 mar 1984", "it", "21 dic 1931"),
        ("2 March 1984", "de", "21 December 1931"),
    ],
)
def test_names_of_months_are_read_in_the_language_of_the_page_and_in_others(shown, language, value):
    assert shown_like(shown, TOKEN, VALUE, language) == value


def test_the_language_of_a_page_is_the_one_that_it_says():
    assert language_of(b'<!doctype html><html class="x" lang="de-AT"><body lang=fr>') == "de"
    assert language_of(b"<HTML LANG=FR>") == "fr"
    assert language_of(b'<html lang="xx">') == language_of(b"<p lang=fr>") == ""


@table(
    ("shown", "token", "value", "spelled"),
    [
        ("02.03.1984", TOKEN, "about 1931", "about 1931"),
        ("02.03.1984", TOKEN, "01/02/1931", "01/02/1931"),  # nobody knows the order
        ("02.03.1984", TOKEN, "1931-12-21T10:00", "1931-12-21T10:00"),
        ("2 March 1984", "02/03/1984", VALUE, None),
        ("2 March 1984", "1984-03-02T10:00", VALUE, None),
        ("Sept. 2, 1984", "1984-09-02", "1931-05-07", "May. 7, 1931"),
        ("12/10/1984", "1984-12-10", "1931-05-07", "05/07/1931"),
        ("10 December 1984", "1984-12-10", "1931-05-07", "7 May 1931"),
    ],
)
def test_a_value_whose_day_is_not_certain_is_as_it_is_stored(shown, token, value, spelled):
    assert shown_like(shown, token, value) == spelled


@given(st.dates(dt.date(1000, 1, 1)), st.dates(dt.date(1000, 1, 1)), st.dates(dt.date(1000, 1, 1)))
def test_only_the_day_of_the_token_is_taken_for_it(token, value, other):
    for manner in ("%Y-%m-%d", "%d.%m.%Y", "%B %d, %Y", "%d %b %Y", "%a %b %d %Y"):
        shown = shown_like(token.strftime(manner), str(token), str(value))
        assert shown is not None
        assert shown_like(shown, str(value), str(value)) is not None
        assert (shown_like(other.strftime(manner), str(token), str(value)) is None) == (
            other != token
        )
