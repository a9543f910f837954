import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor.shown_dates import shown_like
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
        "", "1984", "1984-03", "1984-03-03", "1985-03-02", "2 mars 1984", "2 May 1984", "March 1984",
        "1984-03-02 10:00", "age 41", "born 1984-03-02", "1984-03-02 1984-03-02", "Monday, March 2, 1984",
        "2 March April 1984", "x" * 100,
    ],
)  # fmt: skip
def test_what_shows_another_day_or_more_than_a_day_is_none(shown):
    assert shown_like(shown, TOKEN, VALUE) is None


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
