"""Token formats: one file per family, plain functions of value, keys and options.

``base`` is the contract. A shape is parsed once from a rule file and bound to the keys of one
field; keys come from ``crypto`` as functions, never as bytes. Same-value tokens and look-up hashes
are computed from normal forms (``normalize``). A further shape is a file and a line in ``SHAPES``;
``tests/conformance/test_shapes.py`` then holds it to the contract. Face: what stands here,
``base``, ``normalize``, ``mask``, ``fallback``.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from proxy.model.schema import Value
from proxy.tokenization import constant, date, digits, mask, sealed, template
from proxy.tokenization.base import Parser, Resolution, Shape, Tokenizer, TokenKeys
from proxy.tokenization.common import write32, write62
from proxy.tokenization.normalize import FIELD_KINDS

__all__ = [
    "DEFAULT_SHAPE",
    "DTK_FORMAT",
    "FIELD_KINDS",
    "PERSISTENT",
    "SHAPES",
    "SYNONYMS",
    "Rehasher",
    "Strategy",
    "make_shape",
    "strategy",
    "strategy_names",
    "write32",
    "write62",
]

#: Wire name -> how the shape is built, and what others ask of it.
SHAPES: dict[str, Parser] = {
    "opaque": sealed.OPAQUE,
    "lower": sealed.LOWER,
    "prepended": sealed.PREPENDED,
    "email": sealed.EMAIL,
    "numeric": digits.NUMERIC,
    "luhn": digits.LUHN,
    "date": date.DATE,
    "uuid": sealed.UUID,
    "filename": sealed.FILE_NAME,
    "template": template.TEMPLATE,
    "fixed": constant.FIXED_SHAPE,
    "mask": mask.MASK,
    "zero": constant.ZERO,
    "one": constant.ONE,
    "plain": constant.CLEAR_TEXT,
}

#: Names of the service specification -> ours.
SYNONYMS: dict[str, str] = {
    "alphaNumeric": "opaque",
    "alphaNumericLowerCase": "lower",
    "alphaPrepended": "prepended",
    "masking": "mask",
}

#: Names of the service specification that also say ``same: true`` -> ours.
PERSISTENT: dict[str, str] = {
    "alphaNumericPersistent": "opaque",
    "alphaNumericLowerCasePersistent": "lower",
    "alphaPrependedPersistent": "prepended",
    "emailPersistent": "email",
    "numericPersistent": "numeric",
    "luhnPersistent": "luhn",
    "datePersistent": "date",
    "uuidPersistent": "uuid",
    "templatePersistent": "template",
}

#: Kind of a field -> the shape its tokens have where the rule names none.
DEFAULT_SHAPE: dict[str, str] = {
    "text": "opaque",
    "name": "opaque",
    "email": "email",
    "phone": "numeric",
    "date": "date",
    "card": "luhn",
    "number": "numeric",
    "uuid": "uuid",
    "iban": "opaque",
    "national_id": "opaque",
}


def make_shape(name: str, options: Mapping[str, object]) -> Shape:
    """The shape of that name, one of ours or of the service specification.

    ``ValueError`` with a sentence that says what to write, for an unknown name or options that do
    not fit.
    """
    if name in PERSISTENT:
        return SHAPES[PERSISTENT[name]]({"same": True, **options})
    parser = SHAPES.get(SYNONYMS.get(name, name))
    if parser is None:
        raise ValueError(f"there is no token shape {name!r}; the shapes are {', '.join(SHAPES)}")
    return parser(options)


# Strategies of a rehash: a token shape under its service name, with the kind of value that it is
# meant for (specification, "Rehash").
#
# The tokens of a rehash are stored outside the vault, so they carry no record and are not looked
# up: a shape that would carry its record carries random numbers instead. The ``…Persistent`` names
# are keyed functions of environment, field, the caller's key (``dtk``) and the normal form of the
# value.

#: The caller's own key of persistent strategies.
DTK_FORMAT: Final = re.compile(r"[0-9A-Za-z]{96}", re.ASCII)

#: Bytes drawn for the two numbers that stand in place of a record's in a token that is to be
#: random: 8 and 4, all that it holds.
_DRAWN: Final = 12


def strategy_names() -> list[str]:
    """Every name of a strategy: those of the service, and ours."""
    return sorted({*SHAPES, *SYNONYMS, *PERSISTENT})


class Strategy(NamedTuple):
    """Shape and kind from which the new value of a field is made."""

    shape: Shape
    kind: str

    def bind(self, keys: TokenKeys, region: str) -> "Rehasher":
        """Return the function that makes the values of one field."""
        return Rehasher(self.shape.bind(keys, self.kind, region), keys)


class Rehasher:
    """Makes new values of one field."""

    __slots__ = ("_keys", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, keys: TokenKeys) -> None:
        self._tokenizer = tokenizer
        self._keys = keys

    def __call__(self, value: Value) -> Value:
        """The new value. Raises ``VaultError(VALUE_UNFIT)``, which never shows the value."""
        return self._tokenizer.mint(
            value, *divmod(int.from_bytes(self._keys.random(_DRAWN), "big"), 1 << 32)
        )

    def findable(self, token: Value) -> bool:
        """Whether this very token is large enough to be looked up."""
        resolution = self._tokenizer.resolution
        return resolution is Resolution.SEALED or (
            resolution is Resolution.INDEXED and self._tokenizer.indexed(token)
        )


def strategy(name: str, options: Mapping[str, object]) -> Strategy:
    """The strategy of that name; ``ValueError`` with a sentence that says what to write.

    Besides the options of the shape there is ``kind``: the type of values, which decides what of
    two spellings is one value.
    """
    if name not in strategy_names():
        raise ValueError(  # without the name: it may be a value that stands at a wrong place
            f"there is no strategy of this name; there are {', '.join(strategy_names())}"
        )
    if "same" in options:
        raise ValueError(
            "same is not said here: the strategies that give equal values equal tokens end in "
            "Persistent"
        )
    own = {option: value for option, value in options.items() if option != "kind"}
    shape = make_shape(name, own)
    kind = options.get("kind", SHAPES[shape.name].kind)
    if not isinstance(kind, str) or kind not in FIELD_KINDS:
        raise ValueError(f"kind is one of {', '.join(FIELD_KINDS)}")
    return Strategy(shape, kind)
