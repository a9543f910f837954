"""The values that a search holds, in their bytes: one by one or several behind one another, read
apart and written again as tokens or as a list of another spelling.

Also names of fields in the texts of parameters: sort orders, and forbidden names.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Value
from proxy.redactor import form
from proxy.redactor.inner_texts import Spelling
from proxy.redactor.json.nested import pieces
from proxy.redactor.json.text import fold_name
from proxy.redactor.json.tree import read_json_value, write_json_value
from proxy.redactor.redact import query_members
from proxy.redactor.request_rules import ListSpelling, Parameter, VaultQuestion
from proxy.redactor.restore import Edit, splice

_WORDS = re.compile(r"[^\w-]+")
_PARTS = re.compile(r"[^\w]+|_{2,}")
_SIGNS = re.compile(r"[\W_]+")
#: What filters of GraphQL servers put behind the name of a field, without signs: ``name_contains``
#: (Prisma), ``name_Icontains`` (Graphene), ``nameStartsWithInsensitive``, ``email_not_in``.
_OPERATORS = (
    r"(?:not|n|i)?(?:eq|ne|equals?|equalto|exact|is|not|in|like|contains?|includes|startswith"
    r"|endswith|beginswith|sw|ew|search|match(?:es)?|regexp?|similar(?:to)?|distinctfrom|gte?|lte?"
    r"|(?:greater|less)than(?:orequalto)?|between|some|every|none|has(?:some|every)?|overlaps)"
    r"(?:i|s|ci|cs|insensitive)?"
)
#: Names of arguments and members whose meaning is remembered, and characters of one.
_REMEMBERED, _SHORT = 4096, 64
_ORDER = re.compile(r"(?:asc|desc)(?:ending)?\Z")
#: One field of an order: its sign, its name, its direction.
_ITEM = re.compile(r"([+-]?)\s*(.+?)(?:(?::|\s|_)+(asc|desc)(?:ending)?)?", re.IGNORECASE)


def field_word(name: str) -> str:
    """A name of a field without what its spellings differ in: ``lastName``, ``last_name``."""
    return _SIGNS.sub("", fold_name(name))


def field_words(text: str) -> set[str]:
    """The names that a text may hold, with sign, direction, in lists or in a path."""
    words = {field_word(word) for split in (_WORDS, _PARTS) for word in split.split(text)}
    return words | {_ORDER.sub("", word) for word in words}


def named_like(fields: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name is that of a field, or compares one: ``_name``, ``name_contains``."""
    words = "|".join(sorted({re.escape(field_word(name)) for name in fields}))
    pattern = re.compile(f"(?:{words})(?:{_OPERATORS})?" if words else r"(?!)")

    def fits(name: str) -> bool:
        return pattern.fullmatch(field_word(form.loosely(name))) is not None

    remembered = lru_cache(maxsize=_REMEMBERED)(fits)
    return lambda name: remembered(name) if len(name) <= _SHORT else fits(name)


def order_keys(parameter: Parameter, text: str) -> list[tuple[str, bool]]:
    """The fields of an order, each with whether it descends; none for an order of other fields.

    Raises ``VaultError(SEARCH_REFUSED)`` for one that cannot be answered completely.
    """
    question, keys, others = parameter.vault or VaultQuestion(), [], False
    for item in text.split(","):
        match = _ITEM.fullmatch(item.strip())
        word = field_word(match[2]) if match is not None else ""
        if match is not None and word in question.order:
            keys.append(
                (question.order[word], match[1] == "-" or (match[3] or "").lower() == "desc")
            )
        elif not field_words(item).isdisjoint({*question.order, *question.orderless}):
            raise search_refused(
                parameter,
                "the vault cannot order records so; name fields in the clear, with commas",
            )
        else:
            others = others or bool(item.strip())
    if keys and others:
        raise search_refused(parameter, "it mixes fields that the vault orders with others")
    return keys


def question_fields(parameter: Parameter, texts: list[str]) -> frozenset[str]:
    """The fields that a question is about."""
    ordered = () if parameter.vault_fields else order_keys(parameter, ",".join(texts))
    return frozenset([*parameter.vault_fields, *(name for name, _ in ordered)])


def named_unwanted(parameter: Parameter, text: str) -> list[str]:
    """The fields that a text of a parameter names, and may not."""
    words = field_words(text) if parameter.unwanted else ()
    return sorted({of for word, of in parameter.unwanted.items() if word in words})


def most_specific(parameters: Mapping[str, Parameter], name: str) -> Parameter | None:
    """The parameter of that name; they stand in the order of their weight."""
    if (exact := parameters.get(name)) is not None:
        return exact
    fits = (of for pattern, of in parameters.items() if form.pattern_matches(pattern, name))
    return next(fits, None)


def searches_any(parameters: Mapping[str, Parameter], target: bytes) -> bool:
    """Whether a target has one of these that does not pass. Raises as ``query_members``."""
    declared = {name: one for name, one in parameters.items() if not one.passes}
    _, members = query_members(target, tuple(declared))
    return any(most_specific(declared, one.name) for one in members)


def unruled_order(
    searches: Iterable[Mapping[str, Parameter]],
    protected: Mapping[str, str],
    member: tuple[str, str],
) -> list[str]:
    """The protected fields that an order names and no rule refuses or drops.

    ``searches``: the ruled parameters; ``protected``: fields by the words of orders; ``member``:
    its name and text. An order that passes on purpose, or holds a field, has none.
    """
    name, text = member
    ruled: set[str] = set()
    for parameters in searches:
        if (one := most_specific(parameters, name)) is None:
            continue
        if one.refused or one.of or one.passes or one.vault_fields:
            return []
        question = one.vault or VaultQuestion()
        ruled |= {*one.unwanted, *question.order, *question.orderless}
    return sorted({protected[word] for word in (field_words(text) & protected.keys()) - ruled})


def undropped(parameters: Mapping[str, Parameter], target: bytes) -> bytes:
    """A request target without the parameters that are dropped for what they hold.

    Every other byte stays. Raises ``VaultError`` for a name or value that cannot be read.
    """
    path, mark, query = target.partition(b"?")
    remaining = [raw for raw in query.split(b"&") if not _drops(parameters, raw)]
    if len(remaining) == query.count(b"&") + 1:
        return target
    return path + (mark + b"&".join(remaining) if remaining else b"")


def _drops(parameters: Mapping[str, Parameter], raw: bytes) -> bool:
    name, _, value = raw.partition(b"=")
    parameter = most_specific(parameters, form.read_form_value(name)) if raw else None
    if parameter is None or not parameter.dropped:
        return False
    text = form.read_form_value(value)
    return bool(text.strip()) and (parameter.refused or bool(named_unwanted(parameter, text)))


def refuse_named(parameter: Parameter, text: str) -> None:
    """Raise ``VaultError`` (SEARCH_REFUSED) if a parameter may not hold this; it is not quoted."""
    if not (parameter.refused or parameter.unwanted) or parameter.dropped or not text.strip():
        return
    if parameter.refused:
        reason = (
            "the application keeps tokens in place of what it would be looked for in, so it "
            "would find nothing or other records; leave it out, or search by a whole value"
        )
    else:
        if not (named := named_unwanted(parameter, text)):
            return
        reason = (
            f"the application keeps tokens in place of values of {', '.join(named)}, and "
            "would sort or search by those; leave them out"
        )
    raise search_refused(parameter, reason)


def search_refused(parameter: Parameter, reason: str) -> VaultError:
    """The error of a parameter that cannot be answered; tells no value."""
    return VaultError(
        Code.SEARCH_REFUSED,
        f"The parameter '{parameter.name}' cannot be answered: {reason}.",
        (Detail(parameter.name, reason),),
    )


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
    def any(self) -> bool:
        """Whether there is anything."""
        return bool(self.values or self.lists or self.questions)

    @property
    def every(self) -> list[SoughtValue]:
        """All values, those of lists among them."""
        every = [*self.values]
        for one in self.lists:
            every += one.values
        return every

    @property
    def mixed(self) -> list[SoughtValue]:
        """Return the values that are also sent in the clear."""
        listed = (one for of in self.lists if of.parameter.mixed for one in of.values)
        return [*(one for one in self.values if one.clear), *listed]

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


NOTHING_SOUGHT: Final = Searched()  #: of a part that is not looked at


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
                clear = spelling.write(Value(parameter.split)) + spelling.write(value)
                sought = sought._replace(clear=clear)
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
    ways = [list(map(form.loose_form_name, pieces(name))) for name in (sent, other)]
    if not all(map(any, ways)):
        return sent == other
    return all(one == two or not (one and two) for one, two in zip(*ways, strict=False))


def document_names(body: bytes) -> set[str]:
    """The names of all members of a valid JSON document."""
    names = (read_json_value(text[1]) for text in _JSON_TEXT.finditer(body) if text[2])
    return {name.text for name in names if name is not None}
