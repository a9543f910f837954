"""Pages: where a value may stand in one, and how it is written there so that it can never become
markup.

A value is written only where a browser shows it: in text, and in the few attributes that are text.
What acts (an address, a style, an event handler, a script) keeps its token: there no escaping of a
value would be safe, because the browser undoes it before it acts. Tags are read as the HTML
standard reads them, "Tokenization".
"""

import re
from collections.abc import Iterator

#: Attributes that are only ever shown.
_SHOWN = frozenset({b"value", b"title", b"alt", b"placeholder", b"label", b"aria-label"})

_OPENING = re.compile(rb"<!--|<(/?[A-Za-z][^ \t\n\f\r/>]*+)")
_ATTRIBUTE = re.compile(
    rb"[ \t\n\f\r/]*+([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)"
    rb"(?:[ \t\n\f\r]*+=[ \t\n\f\r]*+(\"[^\"]*+\"|'[^']*+'|[^ \t\n\f\r>\"'][^ \t\n\f\r>]*+)?)?"
)
_COMMENT_END = re.compile(rb"--!?>")

#: Elements whose content is text to the browser, up to their end tag; ``True``: text that it shows,
#: escapes undone.
_TEXT = {b"textarea": True, b"title": True} | dict.fromkeys(
    (b"script", b"style", b"xmp", b"iframe", b"noembed", b"noframes", b"noscript", b"plaintext"),
    False,
)


def text(value: str) -> bytes:
    """A value for any place that only shows it: all but letters and digits as numeric references.

    Safe in text and in attributes, quoted or not, and whatever the page's charset is.
    """
    return "".join(
        char if char.isascii() and char.isalnum() else f"&#{ord(char)};" for char in value
    ).encode()


def acting(page: bytes) -> Iterator[tuple[int, int]]:
    """The stretches of a page, in order, in which no value may stand."""
    at = 0
    while (opening := _OPENING.search(page, at)) is not None:
        if opening[1] is None:
            end = _COMMENT_END.search(page, opening.start() + 2)  # ``<!-->`` is a whole comment
            at = end.end() if end else len(page)
            continue
        at = opening.start()
        for start, end_of_value in _shown(page, opening.end()):
            yield at, start
            at = end_of_value
        closing = page.find(b">", at)
        end_of_tag = closing + 1 if closing >= 0 else len(page)
        yield at, end_of_tag
        at = end_of_tag
        name = opening[1].lower()
        if name in _TEXT:
            end_of_text = _end_of_text(page, name, at)
            if not _TEXT[name]:
                yield at, end_of_text
            at = end_of_text


def _shown(page: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Where the values of attributes stand that are only shown; the last pair, an empty one, is
    where the tag ends.
    """
    while (attribute := _ATTRIBUTE.match(page, at)) is not None:
        at = attribute.end()
        if attribute[2] and attribute[1].lower() in _SHOWN:
            yield attribute.span(2)
    yield at, at


def _end_of_text(page: bytes, name: bytes, at: int) -> int:
    end = re.compile(rb"</" + name + rb"(?=[ \t\n\f\r/>])", re.IGNORECASE).search(page, at)
    return end.start() if end and name != b"plaintext" else len(page)
