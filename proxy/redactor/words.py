"""Words of a rule that name no place: handling of values that are empty, missing or of another
kind, and of answers.

A word is a field here, of the name of its key: the loader reads it, ``rules explain`` shows it, and
``rules diff`` compares it by that alone. ``load/operation_keys`` describes it to people.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final


class DocumentKind(enum.StrEnum):
    """The reading of a document: elements, the values of a call, or the lines of cards."""

    ELEMENTS = "xml"
    CALL = "xmlrpc"
    VOBJECT = "vobject"

    @property
    def nests(self) -> bool:
        """Whether places in it are those of elements."""
        return self is not DocumentKind.CALL


class Absent(enum.StrEnum):
    """A declared field that an update does not carry."""

    KEEP = "keep"
    ERASE = "erase"


class Nulls(enum.StrEnum):
    """A declared field that is ``null``: erase the value, or keep it and send its token."""

    ERASE = "erase"
    KEEP = "keep"


class Empty(enum.StrEnum):
    """A declared field that is the empty text: store that, or keep the value and send its token."""

    STORE = "store"
    KEEP = "keep"


class OwnToken(enum.StrEnum):
    """A value that is already the record's own token: keep its value, or refuse it."""

    KEEP = "keep"
    REFUSE = "refuse"


class OwnMask(enum.StrEnum):
    """A value that is the caller's masked view of the record: keep the stored value, or refuse."""

    KEEP = "keep"
    REFUSE = "refuse"


class OtherKinds(enum.StrEnum):
    """A body, or a file in a form, that no rule can follow: refuse it, or pass it unchanged."""

    REFUSE = "refuse"
    PASS = "pass"


class Formulas(enum.StrEnum):
    """Values of an export that a spreadsheet would compute."""

    LEAVE = "leave"
    ESCAPE = "escape"


#: Verbs that a word means something to, where it does not to all.
_UPDATES: Final = {"of": ("update",)}
_WRITES: Final = {"of": ("create", "update")}
#: The value that protects more than the others, where one does.
_REFUSES: Final = {"protects": OtherKinds.REFUSE}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWords:
    """Words of a request."""

    absent: Absent = field(default=Absent.KEEP, metadata=_UPDATES)
    nulls: Nulls = field(default=Nulls.ERASE, metadata=_WRITES)
    empty: Empty = field(default=Empty.STORE, metadata=_WRITES)
    own_token: OwnToken = field(default=OwnToken.KEEP, metadata=_WRITES)
    own_mask: OwnMask = field(default=OwnMask.KEEP, metadata=_UPDATES)
    other_kinds: OtherKinds = field(default=OtherKinds.REFUSE, metadata=_REFUSES)
    #: parts of a multipart form that are no texts
    files: OtherKinds = field(default=OtherKinds.REFUSE, metadata=_REFUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWords:
    """Words of an answer."""

    formulas: Formulas = Formulas.LEAVE
    #: A list shows all records; an answer to creates, all that were created; the success of a
    #: change of several means every one. Values that are gone in the application end at once then.
    complete: bool = field(default=False, metadata={"protects": True})
    scan: bool = False  #: tokens are also restored outside the named places


RuleWords = RequestWords | ResponseWords


def read_words(kind: type[RuleWords], values: Mapping[str, Any]) -> dict[str, Any]:
    """The words among the values of a section, without those at fault."""
    said = {one.name: values.get(one.name) for one in fields(kind)}
    types: dict[str, Any] = {one.name: type(one.default) for one in fields(kind)}
    return {name: types[name](one) for name, one in said.items() if one is not None}


def pointless_words(kind: type[RuleWords], verb: str) -> list[str]:
    """The words that mean nothing to an operation with that verb."""
    return [one.name for one in fields(kind) if verb not in one.metadata.get("of", (verb,))]


def words_in(kind: type[RuleWords], rule: RuleWords) -> dict[str, Any]:
    """The words of a rule by their keys."""
    values = {one.name: getattr(rule, one.name) for one in fields(kind)}
    return {name: one if isinstance(one, bool) else str(one) for name, one in values.items()}


def ranked_words(kind: type[RuleWords], rule: RuleWords) -> dict[str, tuple[str, int | None]]:
    """Each word as a text, with its rank among others: a higher one protects more."""
    ranked = {}
    for one in fields(kind):
        value, protects = getattr(rule, one.name), one.metadata.get("protects")
        text = ("none", "true")[value] if isinstance(value, bool) else str(value)
        ranked[one.name] = text, None if protects is None else int(value is protects)
    return ranked
