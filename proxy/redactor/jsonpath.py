"""Selectors as rule files write them, parsed once while rules load.

A selector is a part of JSONPath (RFC 9535) that can be followed without evaluating anything: ``$``
or ``@`` or nothing (relative), member names, ``['quoted']`` names, element numbers, ``[*]``, ``.*``
and ``..``. The rest of the language (filters, slices, lists of selectors, numbers from the end,
functions) is refused, so that a rule never means less than it says. Only this file knows the parser
library.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from proxy.model.schema import Path, PathStep

if TYPE_CHECKING:
    from jsonpath_ng.jsonpath import JSONPath

#: Numbers of elements end where every JSON implementation still counts exactly (RFC 9535, 2.1).
LARGEST_INDEX = 2**53 - 1

#: Characters of a selector. The library behind it needs a multiple of the time for a multiple of
#: them.
LONGEST_SELECTOR = 512

SUPPORTED = (
    "supported are $, member names, ['quoted names'], element numbers from 0, [*], .* and .. , for "
    "example $.items[*].email"
)

# Compiled with the first selector: it takes 4 ms of each start.
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_QUOTED = r"""'(?:[^'\\\x00-\x1f\ud800-\udfff]|\\['\\/])*'|"(?:[^"\\\x00-\x1f\ud800-\udfff]|\\["\\/])*\""""
_BRACKET = rf"\[(?:{_QUOTED}|0|[1-9][0-9]{{0,15}}|\*)\]"
#: The spellings that RFC 9535 and the library read alike; white space outside of quotes is not
#: among them.
_WHOLE = rf"(?:[$@]|(?:{_NAME}|\*)|{_BRACKET})(?:\.\.?(?:{_NAME}|\*)|(?:\.\.)?{_BRACKET})*"
_WILDCARD = rf"(?:{_QUOTED})|(?P<star>\[?\*)"

#: Plain words that the library takes for operators.
_RESERVED = rf"(?:{_QUOTED})|(?<![A-Za-z0-9_])(?P<word>where|wherenot)(?![A-Za-z0-9_])"


@lru_cache(
    1024
)  # the library builds its tables for each text, and rules name a field in many places
def parse_jsonpath(text: str) -> Path:
    """The steps that a selector takes, from the root (``$``) or from the object (``@`` or nothing).

    ``ValueError`` with a sentence on the supported forms for any other text.
    """
    if len(text) > LONGEST_SELECTOR:
        raise ValueError(f"a selector has at most {LONGEST_SELECTOR} characters")
    _check(text)
    # rules that name their members by words alone need no parser, and a start does without it
    from jsonpath_ng.exceptions import JSONPathError
    from jsonpath_ng.parser import parse as parse_text

    rooted = "$" + text[1:] if text[0] in "$@" else text
    try:
        tree = parse_text(rooted)
    except JSONPathError as fault:
        raise ValueError(f"selector {text!r} is not understood; {SUPPORTED}") from fault
    wildcards = iter([match["star"] for match in re.finditer(_WILDCARD, text) if match["star"]])
    return tuple(_steps(tree, text, wildcards))


def _check(text: str) -> None:
    if re.fullmatch(_WHOLE, text) is None:
        hint = _hint(text)
        raise ValueError(f"selector {text!r} is not supported{hint}; {SUPPORTED}")
    for match in re.finditer(_RESERVED, text):
        if match["word"]:
            raise ValueError(f"selector {text!r}: put the name in quotes, ['{match['word']}']")


def _hint(text: str) -> str:
    """Hint at the most likely slip."""
    if not text:
        return ": it is empty"
    if text != text.strip() or re.search(r"\s", re.sub(_QUOTED, "", text)):
        return ": it holds white space outside of quotes"
    if "?" in text or "(" in text:
        return ": filters and functions have no meaning here"
    if re.search(r"\[[^'\"\]]*[:,-]", text):
        return ": slices, lists and numbers from the end have no meaning here"
    if re.search(r"[^\x00-\x7f]|-|\.[0-9]", re.sub(_QUOTED, "", text)):
        return (
            ": a name with other characters than letters, digits and _ goes in quotes, as in "
            "$['first-name']"
        )
    return ""


def _steps(tree: "JSONPath", text: str, wildcards: Iterator[str]) -> Iterator[str | int | PathStep]:
    """The steps of a syntax tree, left to right; ``wildcards`` tells how each ``*`` was spelled."""
    from jsonpath_ng import jsonpath as syntax

    if isinstance(tree, syntax.Root):
        return
    if isinstance(tree, syntax.Child | syntax.Descendants):
        yield from _steps(tree.left, text, wildcards)
        if isinstance(tree, syntax.Descendants):
            yield PathStep.DEEP
        yield from _steps(tree.right, text, wildcards)
    elif isinstance(tree, syntax.Wildcard):
        yield PathStep.EACH if next(wildcards).startswith("[") else PathStep.MEMBERS
    elif isinstance(tree, syntax.Fields) and len(tree.fields) == 1:
        yield tree.fields[0]
    elif (
        isinstance(tree, syntax.Index)
        and len(tree.indices) == 1
        and 0 <= tree.indices[0] <= LARGEST_INDEX
    ):
        yield tree.indices[0]
    else:
        raise ValueError(f"selector {text!r} is not supported; {SUPPORTED}")
