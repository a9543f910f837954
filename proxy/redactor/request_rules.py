"""Compiled rules of searches, conditions and envelopes.

A search has parameters and their treatment; an envelope the places of its requests and answers.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.model.schema import Path, Value, spell
from proxy.redactor.path_template import PathTemplate

#: The steps of the path of an attribute in an expression, as ``sought.field_word`` has them.
Attribute = tuple[str, ...]

ConditionSource = enum.StrEnum("ConditionSource", ["BODY", "FORM", "HEADER", "QUERY", "TYPE"])


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on a request that selects one of several operations at a path."""

    #: BODY by ``path`` from the root; FORM, HEADER, QUERY by ``name``; TYPE: the bare media type
    source: ConditionSource
    name: str
    path: Path
    values: frozenset[Value]  #: one of these; those of a body are distinguished by their JSON kind


#: Statuses that mean success where a rule names none.
SUCCESS: Final = frozenset(range(200, 300))


@dataclass(frozen=True, slots=True)
class RedirectSuccess:
    """Statuses that mean success when ``Location`` leads there and the body holds this text."""

    statuses: frozenset[int]
    locations: tuple[PathTemplate, ...] = ()  #: empty: wherever it leads
    text: str = ""  #: letter for letter; empty: whatever it holds


@dataclass(frozen=True, slots=True)
class ListSpelling:
    """Format in which several values of one parameter are sent on."""

    param: str  #: the name that they are sent under; empty: the parameter's own
    join: str  #: separator of them; empty: the parameter is repeated
    none: str | None  #: sent if there is none; ``None``: nothing
    most: int = 500  #: ids that are sent at most


@dataclass(frozen=True, slots=True)
class VaultQuestion:
    """Query of the vault by a parameter; the ids that it finds are sent on."""

    #: by name, how each is looked for: ``exact``, ``partial``, ``from``, ``to``, ``after``,
    #: ``before``; the value stands in one of them
    fields: Mapping[str, str] = field(default_factory=dict)
    #: of a sort parameter: fields by their names as ``sought.field_word`` writes them, in whose
    #: order ids can be sent; and those for which it is refused
    order: Mapping[str, str] = field(default_factory=dict)
    orderless: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a search, and its treatment."""

    name: str  #: as the rule writes it: a name, a pattern with ``*``, or a selector
    of: str = ""  #: the field whose same-value tokens take the place of its values
    split: str = ""  #: separator of several values
    send: ListSpelling | None = None
    vault: VaultQuestion | None = None
    #: the field of values without an ``@``, where ``of`` holds mail addresses; ``None``: ``of`` as
    #: well; empty: they pass
    other: str | None = None
    refused: bool = False  #: in any case
    dropped: bool = False  #: taken off the address where it would be refused
    #: fields that make it refused, by their names as ``sought.field_word`` writes them
    unwanted: Mapping[str, str] = field(default_factory=dict)
    none: str | None = None  #: a text that stands for no value, and stays
    #: of a filter of SCIM: the fields by their attributes; and those of them that are swapped
    attributes: Mapping[Attribute, str] = field(default_factory=dict)
    swapped: frozenset[str] = frozenset()
    #: whether its values are sent in the clear as well: the application holds some of them so
    mixed: bool = False
    #: of a document of JSON in a text: its places from its root, and their parameters
    inside: "tuple[tuple[Path, Parameter], ...]" = ()

    @property
    def passes(self) -> bool:
        """Whether it holds no personal data."""
        says = (self.of, self.vault, self.refused, self.unwanted, self.attributes, self.inside)
        return not any(says)

    def field_of(self, text: str) -> str:
        """The field that a value belongs to; empty where it passes."""
        signs = "@\N{FULLWIDTH COMMERCIAL AT}\N{SMALL COMMERCIAL AT}"  # some read all as one
        address = self.other is None or any(sign in text for sign in signs)
        return self.of if address or self.other is None else self.other

    @property
    def vault_fields(self) -> Mapping[str, str]:
        """Fields in which the vault searches for a value, with the way of comparing."""
        return self.vault.fields if self.vault is not None else {}


@dataclass(frozen=True, slots=True)
class TextPlace:
    """A text that is a document of JSON: its place, and the places in it."""

    #: ``object`` and ``root``: by ``path``, from where it counts; ``form``, ``multipart``: by name
    source: str
    name: str
    path: Path
    fields: tuple[tuple[Path, str], ...]  #: fields by their places, from the root of the document
    texts: tuple["TextPlace", ...] = ()  #: documents in it, by their ``path``

    @property
    def label(self) -> str:
        """Name in error messages."""
        return self.name or spell(self.path)


@dataclass(frozen=True, slots=True)
class SearchRule:
    """The parameters and places of a request that hold values to look for."""

    query: Mapping[str, Parameter]  #: by name or pattern, the most specific first
    form: Mapping[str, Parameter]
    values: tuple[tuple[Path, Parameter], ...]  #: places in a JSON body, from its root
    path: Mapping[str, str]  #: placeholder -> the field whose same-value token takes its place


@dataclass(frozen=True, slots=True)
class PassPlaces:
    """Places of a request that hold nobody's data, as their rule says (``pass: true``): they pass
    unreported, and a value of a field may stand there.
    """

    query: tuple[str, ...] = ()  #: names and patterns, as in ``form``, ``multipart`` and ``csv``
    form: tuple[str, ...] = ()
    multipart: tuple[str, ...] = ()
    csv: tuple[str, ...] = ()
    values: tuple[Path, ...] = ()  #: places in a JSON body, from its root

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Each with its part of the request: ``("body", "$.city")``."""
        named = {"query": self.query, "form": self.form, "upload": (*self.multipart, *self.csv)}
        labels = [(part, name) for part, names in named.items() for name in names]
        return (*labels, *(("body", spell(path)) for path in self.values))


@dataclass(frozen=True, slots=True)
class EnvelopeRule:
    """Format of an envelope: places of its requests and answers, and of their parts."""

    each: Path  #: an array there means each of its elements
    #: these count from the request; empty: it has no such part
    method: Path
    path: Path
    headers: Path
    body: Path
    id: Path | None  #: of requests and answers: equal ones belong together; ``None``: their order
    base: str  #: prefix of paths that do not begin with a slash
    defaults: tuple[str, str]  #: method and path of a request that names none
    answers: Path
    status: Path  #: these count from the answer
    answer_headers: Path
    answer_body: Path
