"""Dates in the manner in which a page shows them: ``02.03.1984``, ``March 2, 1984``, ``2 Mar 84``.

The day that is meant is known, so the order of the numbers is none to guess, nor is a word that is
another month elsewhere. Names of months and days are those of CLDR in some languages of the Union.
"""

import datetime as dt
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.tokenization.normalize import read_date


class _Language(NamedTuple):
    """Names of months and days from Monday on, in small letters, each manner of them in turn; and
    words that may stand between the parts of a date.
    """

    months: tuple[tuple[str, ...], ...]
    days: tuple[tuple[str, ...], ...] = ()
    between: tuple[str, ...] = ()


def _of(*months: str, days: str = "", short: int = 3, between: str = "") -> _Language:
    """``short``: signs of an abbreviated day; 0: days are not read so."""
    full = tuple(days.split())
    manners = (full, tuple(one[:short] for one in full)) if short else (full,)
    return _Language(
        tuple(tuple(one.split()) for one in months),
        manners if full else (),
        tuple(between.split()),
    )


#: By the codes of pages (``lang``): months in full, as in a date, and abbreviated. English has the
#: abbreviations of newspapers, and of Django by default, as well. Portuguese days are two words.
_LANGUAGES: Final = {
    "en": _of(
        "january february march april may june july august september october november december",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "jan feb march april may june july aug sept oct nov dec",
        days="monday tuesday wednesday thursday friday saturday sunday",
    ),
    "de": _of(
        "januar februar märz april mai juni juli august september oktober november dezember",
        "jan feb mär apr mai jun jul aug sep okt nov dez",
        "jan feb märz apr mai juni juli aug sept okt nov dez",
        days="montag dienstag mittwoch donnerstag freitag samstag sonntag",
        short=2,
    ),
    "fr": _of(
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "janv févr mars avr mai juin juil août sept oct nov déc",
        days="lundi mardi mercredi jeudi vendredi samedi dimanche",
        between="le",
    ),
    "es": _of(
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "ene feb mar abr may jun jul ago sept oct nov dic",
        days="lunes martes miércoles jueves viernes sábado domingo",
        between="de del",
    ),
    "it": _of(
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre"
        " dicembre",
        "gen feb mar apr mag giu lug ago set ott nov dic",
        days="lunedì martedì mercoledì giovedì venerdì sabato domenica",
    ),
    "pl": _of(
        "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada"
        " grudnia",
        "sty lut mar kwi maj cze lip sie wrz paź lis gru",
        days="poniedziałek wtorek środa czwartek piątek sobota niedziela",
        short=0,
    ),
    "nl": _of(
        "januari februari maart april mei juni juli augustus september oktober november december",
        "jan feb mrt apr mei jun jul aug sep okt nov dec",
        days="maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
        short=2,
    ),
    "pt": _of(
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        "jan fev mar abr mai jun jul ago set out nov dez",
        between="de",
    ),
    "sv": _of(
        "januari februari mars april maj juni juli augusti september oktober november december",
        "jan feb mars apr maj juni juli aug sep okt nov dec",
        days="måndag tisdag onsdag torsdag fredag lördag söndag",
        short=0,
        between="den",
    ),
    "da": _of(
        "januar februar marts april maj juni juli august september oktober november december",
        "jan feb mar apr maj jun jul aug sep okt nov dec",
        days="mandag tirsdag onsdag torsdag fredag lørdag søndag",
        short=0,
        between="den",
    ),
}
_ENGLISH: Final = _LANGUAGES["en"]
_LANG: Final = re.compile(
    rb"<html\b[^<>]{0,500}?\blang\s{0,9}=\s{0,9}[\"']?([a-z]{2})", re.IGNORECASE
)
_HEAD: Final = 4096
_ORDINALS: Final = ("st", "nd", "rd", "th")
_PIECE: Final = re.compile(r"[^\W\d_]+|[0-9]+")
_LONGEST: Final = 60


def language_of(page: bytes) -> str:
    """The code of the language that a page says it is in; empty for one that has no names here."""
    code = _LANG.search(page[:_HEAD])
    name = code[1].decode().lower() if code is not None else ""
    return name if name in _LANGUAGES else ""


def shown_like(text: str, token: str, value: str, language: str = "") -> str | None:
    """The value in the manner in which the text shows the token; ``None`` if it shows another day,
    or what is no date. A value that is none, or whose order is in doubt, is as it is stored.

    ``language``: of the page, whose names count first; then come English and the others.
    """
    meant, stored = _day(token), _day(value)
    if meant is None or len(text) > _LONGEST:
        return None
    pieces = [one[0] for one in _PIECE.finditer(text)]
    codes = [language, *_LANGUAGES] if language else [*_LANGUAGES]
    worded = any(map(str.isalpha, text))
    readings = (
        (_LANGUAGES[code], roles)
        for code in (codes if worded else codes[:1])
        for roles in _roles(pieces, meant, _LANGUAGES[code])
    )
    named, roles = next(readings, (None, ""))
    if named is None:
        return None
    if stored is None:
        return value
    numbers = [piece for piece, role in zip(pieces, roles, strict=True) if role in "md"]
    padded = any(one[0] == "0" for one in numbers) or (
        "M" not in roles and all(len(one) == 2 for one in numbers)
    )
    days = meant, stored
    spelled = iter(
        [_spelled(*one, days, (named, padded)) for one in zip(pieces, roles, strict=True)]
    )
    return _PIECE.sub(lambda _: next(spelled), text)


def _day(text: str) -> dt.date | None:
    """The day of a date without a time whose order is certain."""
    date = read_date(text.strip())
    return date.day if date is not None and not (date.either or date.time) else None


def _roles(pieces: list[str], day: dt.date, language: _Language) -> Iterator[str]:
    """The role of each piece of a date, if it is that day: ``y``, ``m``, ``d``, a word of these, an
    ending of the day, or a word between them.
    """
    numbers = [one for one in pieces if one.isdigit()]
    words = [one for one in pieces if not one.isdigit()]
    kinds = [_word(one.lower(), day, language) for one in words]
    months = kinds.count("M")
    if None in kinds or months > 1 or len(numbers) != 3 - months:
        return
    orders = ("dy", "yd") if months else ("ymd", "dmy", "mdy")
    for order in orders:
        if all(_is(one, part, day) for one, part in zip(numbers, order, strict=True)):
            parts, named = iter(order), iter(kinds)
            yield "".join(next(parts) if one.isdigit() else next(named) or "" for one in pieces)


def _word(word: str, day: dt.date, language: _Language) -> str | None:
    """The role of a word of a date; ``None`` where it is none of this day."""
    if any(word == names[day.month - 1] for names in language.months):
        return "M"
    if any(word == names[day.weekday()] for names in language.days):
        return "W"
    if word in language.between:
        return "b"
    return "o" if language is _ENGLISH and word in _ORDINALS else None


def _is(number: str, part: str, day: dt.date) -> bool:
    if part == "y":
        return number in (f"{day.year:04d}", f"{day.year % 100:02d}")
    return len(number) <= 2 and int(number) == (day.month if part == "m" else day.day)


def _spelled(
    piece: str, role: str, days: tuple[dt.date, dt.date], manner: tuple[_Language, bool]
) -> str:
    """A piece of the first day, in the same manner as one of the second; ``manner``: the language,
    and whether days and months have two digits.
    """
    (meant, day), (language, padded) = days, manner
    match role:
        case "y":
            return f"{day.year:04d}"
        case "m" | "d":
            number = day.month if role == "m" else day.day
            return f"{number:02d}" if padded else str(number)
        case "M":
            names = _manner(language.months, meant.month - 1, piece)
            return _in_case(names[day.month - 1], piece)
        case "W":
            names = _manner(language.days, meant.weekday(), piece)
            return _in_case(names[day.weekday()], piece)
        case "b":
            return piece
        case _:
            teen = 10 < day.day < 20
            return "th" if teen or day.day % 10 not in (1, 2, 3) else _ORDINALS[day.day % 10 - 1]


def _manner(manners: tuple[tuple[str, ...], ...], number: int, piece: str) -> tuple[str, ...]:
    """The names in the manner of a piece, which is that one of them."""
    return next(names for names in manners if names[number] == piece.lower())


def _in_case(word: str, piece: str) -> str:
    return word.upper() if piece.isupper() else word if piece.islower() else word.title()
