"""Parts of texts and of JSON documents by which a record is found although the store sees only
keyed hashes of them.

A text that is searched for has all its grams in each text that holds it; the reverse is not sure,
so whoever asks has to open what he finds (``asking``). The grams of a text are every three
characters in a row of its folded normal form.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from proxy.tokenization.normalize import plain_text

#: Characters of a gram, and so the shortest text that can be searched for.
SIZE = 3

#: What case folding makes of ``İ``: an i with a dot of its own, which is an i to whoever searches.
_DOTTED_I = "i\u0307"

_encode = msgspec.json.Encoder(decimal_format="string").encode


def folded(text: str) -> str:
    """The form in which texts are compared part by part: normal form, case folded, normal form
    again.
    """
    if text.isascii():
        return text.strip().lower()
    return _folded(text).replace(_DOTTED_I, "i")


def folded_before(text: str) -> str | None:
    """The form that was indexed before ``İ`` was found by ``i``; ``None`` where it is the same."""
    if text.isascii() or _DOTTED_I not in (found := _folded(text)):
        return None
    return found


def _folded(text: str) -> str:
    return plain_text(plain_text(text).casefold())


def grams(text: str) -> set[str]:
    """Every three characters in a row of a folded text; none of a shorter one."""
    return {text[start : start + SIZE] for start in range(len(text) - SIZE + 1)}


#: Where something stands in a JSON document, from its root.
NgramSteps = tuple[str | int, ...]


def leaves(document: Any, at: NgramSteps = ()) -> Iterator[tuple[NgramSteps, Any, bool]]:
    """Every scalar of a JSON document: (where, value, whether it is an element of the array that
    stands there).

    An element of an array is told twice: as what stands at its own number, and as one of those that
    stand in the array.
    """
    if isinstance(document, dict):
        for name, value in document.items():
            yield from leaves(value, (*at, name))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            if not isinstance(value, dict | list):
                yield at, value, True
            yield from leaves(value, (*at, number))
    else:
        yield at, document, False


def leaf(at: NgramSteps, value: Any, inside: bool) -> bytes:
    """A leaf as bytes to be hashed: equal for equal values, whatever their spelling (``1`` and
    ``1.0``, composed letters).
    """
    if isinstance(value, str):
        value = plain_text(value)
    elif isinstance(value, int | Decimal) and not isinstance(value, bool):
        value = [_number(Decimal(value))]  # in a list, so that no text is taken for it
    return _encode([inside, at, value])


def _number(value: Decimal) -> str:
    """One spelling for each number; no exponent can make it long."""
    sign, digits, exponent = value.as_tuple()
    significant = "".join(map(str, digits)).lstrip("0")
    bare = significant.rstrip("0")
    if not bare or not isinstance(exponent, int):
        return "0"
    return f"{'-' if sign else ''}{bare}e{exponent + len(significant) - len(bare)}"
