"""Names of fields in the texts of parameters: sort orders, and forbidden names."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from proxy.errors import Code, Detail, VaultError
from proxy.redactor import form
from proxy.redactor.json.text import fold_name
from proxy.redactor.search_rules import Parameter, VaultQuestion

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
    exact = parameters.get(name)
    if exact is not None:
        return exact
    fits = (of for pattern, of in parameters.items() if form.pattern_matches(pattern, name))
    return next(fits, None)


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
    members = query.split(b"&")
    remaining = [raw for raw in members if not _drops(parameters, raw)]
    if len(remaining) == len(members):
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
    if not text.strip() or parameter.dropped:
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
