"""Token formats: one file per family, plain functions of value, keys and options.

``base`` is the contract. A shape is parsed once from a rule file and bound to the keys of one
field; keys come from ``crypto`` as functions, never as bytes. Same-value tokens and look-up hashes
are computed from normal forms (``normalize``). A further shape is a file and a line in ``SHAPES``;
``tests/conformance/test_shapes.py`` then holds it to the contract. Face: what stands here,
``base``, ``normalize``, ``mask``, ``fallback``.
"""

from collections.abc import Mapping

from proxy.tokenization import constant, date, digits, mask, sealed, template
from proxy.tokenization.base import Parser, Shape
from proxy.tokenization.common import write32, write62
from proxy.tokenization.normalize import FIELD_KINDS

__all__ = [
    "DEFAULT_SHAPE",
    "FIELD_KINDS",
    "PERSISTENT",
    "SHAPES",
    "SYNONYMS",
    "make_shape",
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
