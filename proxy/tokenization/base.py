"""The port between a rule's token shape and the keys that mint with it.

A ``Shape`` is parsed once from a rule file: options checked, no keys, no state. ``bind`` joins it
to the keys of one field and gives the ``Tokenizer`` that the vault calls. "Two ways to restore" of
the rule language is ``Resolution``.
"""

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from proxy.model.schema import Value


class Resolution(enum.Enum):
    """Way from a token back to its value."""

    #: the token carries the sealed id of its record: no index, one primary-key read
    SEALED = "sealed"
    INDEXED = "indexed"  #: by an index of keyed hashes of tokens; unique unless ``same``
    BY_RECORD = "by_record"  #: too small to be unique: by the record's id and the field
    CLEAR = "clear"  #: no token: the value itself passes (shape ``plain``)


#: Tokens that tell their record from others.
TELLS_RECORD: Final = Resolution.SEALED, Resolution.INDEXED


class TokenKeys(Protocol):
    """The keyed functions of one field, handed out by the keyset; key bytes never leave it."""

    def block(self, rid: int, number: int) -> bytes:
        """16 bytes: the sealed pair (record id < 2^64, value number < 2^32) and its check."""

    def blocks(self, rid: int, numbers: Iterable[int]) -> bytes:
        """The blocks of several value numbers of a record; the same for all fields of a schema."""

    def open_block(self, block: bytes) -> tuple[int, int] | None:
        """The pair a ``block`` carries, or ``None`` if its check fails (a look-alike)."""

    def open_blocks(self, blocks: bytes) -> list[int | None]:
        """The record id of ``open_block`` for each of many blocks behind each other."""

    def narrow_block(self, rid: int, number: int) -> int:
        """The same pair in 122 bits, for a UUID, with a shorter check part."""

    def open_narrow_block(self, bits: int) -> tuple[int, int] | None:
        """The pair a ``narrow_block`` carries, or ``None`` for a look-alike."""

    def prf(self, text: str, length: int) -> bytes:
        """``length`` bytes, a keyed pseudorandom function of the field and ``text``."""

    def permute(self, digits: str, tweak: bytes) -> str:
        """A keyed permutation of decimal digit strings of one length (2 to 56), made of FF1 (NIST
        SP 800-38G).

        The answer is never the string itself. Fewer than 6 digits are a permutation too, but hide
        little.
        """

    def random(self, length: int) -> bytes:
        """``length`` bytes from the system's source of randomness."""


class SealedSpelling(NamedTuple):
    """Spelling of a sealed pair as a token: text before, the written block, text behind.

    ``unseal_each`` reads the record ids of many tokens in less time than one by one; ``blocks`` seals
    several value numbers of a record together, for all fields of its schema.
    """

    block: Callable[[int, int], Any]
    write: Callable[[Any], str]
    before: str = ""
    behind: str = ""
    unseal_each: Callable[[Sequence[str]], list[int | None]] | None = None
    blocks: Callable[[int, Iterable[int]], bytes] | None = None


class Tokenizer(Protocol):
    """Token format of one field with its keys. Methods are cheap and, but for randomness, pure."""

    @property
    def resolution(self) -> Resolution:
        """Way from tokens of this field back to their values."""

    @property
    def same(self) -> bool:
        """Whether equal values (by the normal form of the kind) get equal tokens."""

    @property
    def spelling(self) -> SealedSpelling | None:
        """Spelling of the tokens that carry their record; ``None`` for others."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds candidates inside running text.

        A hit is then checked by ``identify`` or a look-up.
        """

    def mint(self, value: Value, rid: int, number: int) -> Value:
        """A token for the value: new and random, or, with ``same``, the keyed function of its
        normal form.

        A SEALED token carries ``rid`` and ``number``. The token never equals the value (other than
        for ``plain``). Raises ``VaultError(VALUE_UNFIT)``, whose text never shows the value, if
        this shape cannot carry the value.
        """

    def identify(self, text: str) -> tuple[int, int] | None:
        """The (record id, value number) that a SEALED token carries; ``None`` for anything else."""

    def carried(self, texts: Sequence[str]) -> list[int | None]:
        """The record id of ``identify`` for each of many texts."""

    def resembles(self, text: str) -> bool:
        """Whether the text has the syntax of this shape's tokens; a prefilter of look-ups."""

    def indexed(self, token: Value) -> bool:
        """Whether this very token is long enough for the index (short numerics are not)."""


class Shape(Protocol):
    """A token shape with its options, as a rule file states it."""

    @property
    def name(self) -> str:
        """The canonical wire name."""

    @property
    def resolution(self) -> Resolution:
        """Way from its tokens back to their values."""

    @property
    def same(self) -> bool:
        """Whether equal values get equal tokens."""

    def capacity(self) -> float:
        """Distinct tokens of the shape for a typical value of its kind; ``inf``: no bound."""

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        """The tokenizer of a field of that ``kind``; kind and region choose ``normal``."""


# Reading the options of a shape: checked by name and type, each fault a sentence for the rule
# file's author.

#: The option of every shape that can answer equal values with equal tokens.
SAME = {
    "same": "true: equal values get equal tokens (a keyed function of field and value); default false"
}


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """The options that a rule gives one shape."""

    shape: str
    options: Mapping[str, object]

    def flag(self, name: str) -> bool:
        """Yes or no; no where absent."""
        value = self.options.get(name, False)
        if not isinstance(value, bool):
            raise ValueError(f"{name} of token shape {self.shape} is true or false")  # noqa: TRY004  # one kind of error for all faults of a rule file
        return value

    def count(self, name: str) -> int:
        """A whole number, 0 or more; 0 where absent."""
        value = self.options.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} of token shape {self.shape} is a whole number, 0 or more")
        return value

    def text(self, name: str, default: str) -> str:
        """A text that is not empty."""
        value = self.options.get(name, default)
        if not isinstance(value, str) or not value:
            raise ValueError(f"{name} of token shape {self.shape} is a text that is not empty")
        return value


@dataclass(frozen=True, slots=True)
class Parser:
    """An entry of ``SHAPES``: how a shape is built, and all that others ask of it by name."""

    name: str
    options: Mapping[str, str]  #: name -> one-line description, for errors and documents
    build: Callable[[ShapeOptions], Shape]
    kind: str = "text"  #: of the values that it is meant for, where nothing names their kind
    total: bool = False  #: whether every value fits, JSON of every type too
    capitals: bool = False  #: whether tokens are others in lower case
    looks_like: str = ""  #: what people take a token for; empty: for a token
    larger: str = ""  #: how an author makes its tokens unique, as the end of a sentence
    #: whether values may be so short that their tokens are not unique, though those of others are
    sometimes_short: bool = False
    names_files: bool = (
        False  #: whether tokens end as the names of files do in whose place they are
    )

    def __call__(self, options: Mapping[str, object]) -> Shape:
        """Check the options and build the shape; ``ValueError`` says what to write."""
        for name in options:
            if name not in self.options:
                takes = (
                    f"it takes {', '.join(self.options)}" if self.options else "it takes no options"
                )
                raise ValueError(f"token shape {self.name} has no option {name!r}; {takes}")
        return self.build(ShapeOptions(self.name, options))
