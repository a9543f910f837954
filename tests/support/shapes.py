"""What tests of token shapes share: keys, samples that fit, and judges that know nothing of how
tokens are made.
"""

import datetime as dt
import re
from collections.abc import Callable
from email.utils import parseaddr
from typing import Any, NamedTuple

from proxy.crypto.keyset import Keyset
from proxy.tokenization import make_shape
from proxy.tokenization.base import Tokenizer

#: Fixed keys, so that no test of small shapes meets a rare coincidence on some days.
KEYSET = Keyset(
    "test", {bytes(4): bytes(range(32))}, bytes(4), (bytes(range(32, 64)), bytes(range(64, 96)))
)


def bound(
    shape: str, kind: str = "text", *, field: str = "field", region: str = "se", **options: Any
) -> Tokenizer:
    """The tokenizer of a shape for one field of the schema ``contact``."""
    return make_shape(shape, options).bind(KEYSET.field_keys("contact", field), kind, region)


def luhn_by_hand(digits: str) -> bool:
    """The check as a person does it: double every second digit from the right, add the digits of
    all numbers.
    """
    total = ""
    for place, digit in enumerate(reversed(digits)):
        total += str(int(digit) * (1 + place % 2))
    return sum(map(int, total)) % 10 == 0


def only_digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


def same_form(token: str, value: str) -> bool:
    """Whether both have digits in the same places and everything else alike."""
    return re.sub(r"\d", "9", token) == re.sub(r"\d", "9", value)


def is_email(token: str) -> bool:
    """A strict reading of RFC 5321 without quoting, and Python's own."""
    local = r"[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"
    domain = r"(?=.{1,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}"
    return re.fullmatch(f"{local}@{domain}", token) is not None and parseaddr(token) == ("", token)


def is_date(token: str, form: str) -> bool:
    try:
        return dt.datetime.strptime(token, form).replace(tzinfo=dt.UTC).strftime(form) == token
    except ValueError:
        return False


def ends_alike(token: str, value: str) -> bool:
    """Whether a token is a word with the usual ending of the value, and no other."""
    ending = next(
        (one for one in (".pdf", ".tar.gz", ".jpg") if value.lower().strip().endswith(one)), ""
    )
    return re.fullmatch("[a-z][a-z0-9]{25}" + re.escape(ending), token) is not None


class Sample(NamedTuple):
    """A shape with options, values that fit it, and a judge of (token, value)."""

    shape: str
    kind: str
    options: dict[str, Any]
    values: tuple[str, ...]
    fits: Callable[[str, str], bool]


#: At least one sample for every entry of SHAPES. No value is equal to another in its normal form.
SAMPLES: tuple[Sample, ...] = (
    Sample("opaque", "text", {}, ("Ann", "Åsa Ödegård", "x", "日本語"), lambda t, _: t.isalnum() and len(t) == 22),
    Sample("lower", "text", {}, ("Ann", "Bob"), lambda t, _: re.fullmatch("[a-z][a-z0-9]{25}", t) is not None),
    Sample("prepended", "text", {}, ("Ann", "Bob"), lambda t, _: re.fullmatch("T[A-Za-z0-9]{22}", t) is not None),
    Sample("prepended", "name", {"prefix": "cust"}, ("Ann", "Bob"), lambda t, _: re.fullmatch("cust[A-Za-z0-9]{22}", t) is not None),
    Sample("email", "email", {}, ("Ann@Example.com", "bob@x.se", "no address"), lambda t, _: is_email(t) and t.endswith("@example.org")),
    Sample("email", "email", {"domain": "mail.example.net"}, ("a@b.se", "c@d.se"), lambda t, _: is_email(t) and t.endswith("@mail.example.net")),
    Sample("numeric", "number", {}, ("123456", "0012-345-678", "+1 (2) 345.67/8"), same_form),
    Sample("numeric", "number", {"keep_first": 2, "keep_last": 3}, ("12345678901", "55-4433 22.119"), lambda t, v: same_form(t, v) and t[:2] == v[:2] and t[-3:] == v[-3:]),
    Sample("luhn", "card", {}, ("4111111111111111", "378282246310005"), lambda t, v: luhn_by_hand(only_digits(t)) and same_form(t, v)),
    Sample("luhn", "card", {"keep_first": 4, "keep_last": 4}, ("5555555555554444", "4012888888881881"), lambda t, v: luhn_by_hand(only_digits(t)) and t[:4] == v[:4] and t[-4:] == v[-4:]),
    Sample("date", "date", {}, ("1980-02-28", "2001-12-31"), lambda t, _: is_date(t, "%Y-%m-%d") and "1940" <= t[:4] <= "1999"),
    Sample("date", "date", {}, ("28.02.1980", "31.12.2001"), lambda t, _: is_date(t, "%d.%m.%Y")),
    Sample("date", "date", {"from": "2030-01-01", "to": "2031-01-01"}, ("02/28/1980", "12/31/2001"), lambda t, _: is_date(t, "%m/%d/%Y") and t[-4:] in {"2030", "2031"}),
    Sample("date", "date", {}, ("1980-02-28T10:20:30.123Z", "1980-02-28T23:59:59.000Z"), lambda t, _: is_date(t[:19], "%Y-%m-%dT%H:%M:%S") and t[-1] == "Z"),
    Sample("uuid", "uuid", {}, ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "Ann"), lambda t, _: re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", t) is not None),
    Sample("filename", "text", {}, ("Anna Lindqvist passport.PDF", "C:\\scan.tar.gz", "Dr. Anna", "x.pdf.anna", "Åsa.jpg "), ends_alike),
    Sample("template", "text", {"template": "PP-[A-Z0-9]{9}"}, ("AB123456", "X"), lambda t, _: re.fullmatch("PP-[A-Z0-9]{9}", t) is not None),
    Sample("template", "text", {"template": "[a-z]{20}@[a-z0-9-]{3}.x"}, ("AB", "X"), lambda t, _: re.fullmatch(r"[a-z]{20}@[a-z0-9-]{3}\.x", t) is not None),
    Sample("template", "text", {"template": "[0-9]{4}"}, ("1234", "0000"), lambda t, _: re.fullmatch("[0-9]{4}", t) is not None),
    Sample("fixed", "text", {"value": "hidden"}, ("Ann", "Bob"), lambda t, _: t == "hidden"),
    Sample("mask", "email", {}, ("ann@x.se", "bob@y.se"), lambda t, v: t == v[0] + "**" + v[3:]),
    Sample("mask", "text", {"last": 2, "char": "•"}, ("secret", "abcd"), lambda t, v: t == "•" * (len(v) - 2) + v[-2:]),
    Sample("zero", "phone", {}, ("+46 70 123", "abc"), lambda t, v: t == ("+00 00 000" if v[0] == "+" else "0")),
    Sample("one", "text", {}, ("7", "abc"), lambda t, _: t == "1"),
    Sample("plain", "text", {}, ("Ann", "Bob"), lambda t, v: t == v),
)  # fmt: skip
