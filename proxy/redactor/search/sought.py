"""The values that a search holds, in their bytes: one by one or several behind one another, read
apart and written again as tokens or as a list of another spelling.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, quote_plus

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor import form
from proxy.redactor.inner_texts import Spelling
from proxy.redactor.json.nested import pieces
from proxy.redactor.json.tree import read_json_value, write_json_value
from proxy.redactor.restore import Edit, splice
from proxy.redactor.search.field_words import question_fields
from proxy.redactor.search_rules import ListSpelling, Parameter

#: Values of one question to the vault.
MOST_ALTERNATIVES = 100

#: A text of a JSON document, and what makes it the name of a member.
_JSON_TEXT = re.compile(rb'("(?:[^"\\]|\\.)*+")([ \t\n\r]*:)?')
_NAME_END = re.compile(rb'"[ \t\n\r]*:[ \t\n\r]*\Z')


class SoughtValue(NamedTuple):
    """A value that is searched for: its field, its bytes, and how a token is written there."""

    field: str
    start: int
    end: int
    value: Value
    source: str  #: as the rule names it
    write: Callable[[Value], bytes]
    #: of a mixed parameter: the value in the clear, after the token
    clear: bytes = b""


class SoughtList(NamedTuple):
    """Values of one parameter that are sent on under another name, or in another form."""

    parameter: Parameter
    spans: list[tuple[int, int]]  #: the first is where they are written, the others go
    values: list[SoughtValue]
    write: Callable[[Sequence[str]], bytes]

    def edits(self, texts: Sequence[str]) -> Iterator[Edit]:
        """Yield the edits that send these texts instead."""
        (start, end), *others = self.spans
        yield start, end, self.write(texts)
        yield from ((start, end, b"") for start, end in others)


class SoughtQuestion(NamedTuple):
    """Query of the vault by one parameter."""

    parameter: Parameter
    span: tuple[int, int]  #: where the ids are written that answer it, and all others of the part
    texts: list[str]  #: the record has one of them
    write: Callable[[Sequence[str]], bytes]
    fields: frozenset[str]
    removed: Edit  #: what takes it away where the ids are written elsewhere


class Searched(msgspec.Struct):
    """Search values of one part of a request: its address, or its body."""

    values: list[SoughtValue] = []
    lists: list[SoughtList] = []
    questions: list[SoughtQuestion] = []

    @property
    def every(self) -> list[SoughtValue]:
        """All values, those of lists among them."""
        return [*self.values, *(one for several in self.lists for one in several.values)]

    @property
    def mixed(self) -> list[SoughtValue]:
        """Return the values that are also sent in the clear."""
        listed = (
            one for several in self.lists if several.parameter.mixed for one in several.values
        )
        return [*(one for one in self.values if one.clear), *listed]

    @property
    def fields(self) -> set[str]:
        """The fields that it is about."""
        questioned = (one.fields for one in self.questions)
        return {one.field for one in self.every}.union(*questioned)

    def written(
        self,
        content: bytes,
        token_of: Callable[[SoughtValue], Value | None],
        ids: Sequence[str] = (),
        *,
        mixed: bool = False,
    ) -> bytes:
        """Return the part with tokens in place of values, and these ids in place of its queries.

        ``None`` leaves a value unchanged. ``mixed``: besides values that rules let pass.
        """
        edits: list[Edit] = [
            (one.start, one.end, one.write(token) + (one.clear if mixed else b""))
            for one in self.values
            if (token := token_of(one)) is not None
        ]
        for several in self.lists:
            texts = [(token_of(one) or one.value).text for one in several.values]
            if mixed and several.parameter.mixed:
                texts = [*dict.fromkeys([*texts, *(one.value.text for one in several.values)])]
            edits += several.edits(texts)
        if self.questions:
            first, *others = self.questions
            edits += [(*first.span, first.write(ids)), *(one.removed for one in others)]
        return splice(content, edits) if edits else content


def sought_texts(parameter: Parameter, values: list[SoughtValue]) -> list[str]:
    """Return the texts that a parameter searches the vault for."""
    if len(values) > MOST_ALTERNATIVES:
        raise VaultError(
            Code.TOO_LARGE, f"'{parameter.name}' holds more than {MOST_ALTERNATIVES} values."
        )
    return [one.value.text for one in values]


def url_question(
    parameter: Parameter, at: tuple[int, int, int], texts: list[str]
) -> SoughtQuestion:
    """The question of a member of a query or form."""
    first, begin, end = at
    send = parameter.send or ListSpelling("", ",", None)
    removed = max(begin - 1, first), end, b""
    write = partial(url_list, send, send.param)
    return SoughtQuestion(
        parameter, (begin, end), texts, write, question_fields(parameter, texts), removed
    )


def split_values(
    parameter: Parameter, at: tuple[bytes, int, int], spelling: Spelling
) -> list[SoughtValue]:
    """The values between two bytes, split where the rule says so, without blanks round them."""
    data, start, end = at
    spans = [(start, end)]
    separated = spelling.write(Value(parameter.split))
    if parameter.split:
        separator = re.compile(b"".join(map(spelling.escape, parameter.split)))
        ends = [match.span() for match in separator.finditer(data, start, end)]
        whole = spelling.read(data[start:end])
        if len(ends) != whole.count(parameter.split):
            raise VaultError(
                Code.BAD_REQUEST,
                f"What separates the values of '{parameter.name}' is escaped: send it plainly.",
            )
        spans = list(
            zip([start, *(one[1] for one in ends)], [*(one[0] for one in ends), end], strict=True)
        )
    values = []
    for first, stop in spans:
        blanks = spelling.blanks.match(data, first, stop) if parameter.split else None
        begin = first if blanks is None else blanks.end()
        text = spelling.read(data[begin:stop])
        if parameter.split:
            text = text.rstrip()
        of = parameter.field_of(text)
        if text and (of or parameter.vault):
            value = Value(text)
            sought = SoughtValue(of, begin, stop, value, parameter.name, spelling.write)
            if parameter.mixed and parameter.send is None:
                sought = sought._replace(clear=separated + spelling.write(value))
            values.append(sought)
    return values


def url_list(send: ListSpelling, name: str, texts: Sequence[str]) -> bytes:
    """The texts as members of a query or form, under this name."""
    if not texts and send.none is not None:
        texts = (send.none,)
    key = quote_plus(name, safe="*-._[]").encode()
    raw = [form.write_form_value(text) for text in texts]
    if send.join:
        return key + b"=" + quote(send.join, safe=",:").encode().join(raw)
    return b"&".join(key + b"=" + text for text in raw) or key + b"="


def json_list(send: ListSpelling, texts: Sequence[str]) -> bytes:
    """The texts as a JSON array or text, with the name of its member where that is another."""
    if not texts and send.none is not None:
        texts = (send.none,)
    name = write_json_value(Value(send.param)) + b":" if send.param else b""
    if send.join:
        return name + write_json_value(Value(send.join.join(texts)))
    return name + b"[%b]" % b",".join(write_json_value(Value(text)) for text in texts)


def name_start(body: bytes, start: int) -> int:
    """Return the start of the name of the member whose value begins at ``start``.

    An element of an array has no name: its own start.
    """
    end = _NAME_END.search(body[:start])
    if end is None:
        return start
    at = body.rfind(b'"', 0, end.start())
    while at > 0 and (len(body[:at]) - len(body[:at].rstrip(b"\\"))) % 2:
        at = body.rfind(b'"', 0, at)
    return at


def same_parameter(sent: str, other: str) -> bool:
    """Whether an application may read one of two parameters in the place of the other: ``ids[0]``
    and ``IDS`` for ``ids[]``, and ``filter`` for ``filter[ids]``.
    """
    ways = [list(map(form.bare, pieces(name))) for name in (sent, other)]
    if not all(map(any, ways)):
        return sent == other
    return all(one == two or not (one and two) for one, two in zip(*ways, strict=False))


def document_names(body: bytes) -> set[str]:
    """The names of all members of a valid JSON document."""
    names = (read_json_value(text[1]) for text in _JSON_TEXT.finditer(body) if text[2])
    return {name.text for name in names if name is not None}
