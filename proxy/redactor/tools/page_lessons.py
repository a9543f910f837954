"""Lessons from pages of an application: which fields of forms take dates, heads and labels.

A date stands in a page as a small token, so a proposal says where: by the element that holds it, or
by the words that people read above or before it. Pure.
"""

import json
import re
from collections.abc import Collection, Mapping
from html import unescape
from typing import Final

from proxy.redactor.page_heads import headed_texts, label_of
from proxy.redactor.tools.lessons import Lessons, RequestTraffic, kind_of

_INPUT: Final = re.compile(r"<input\s([^<>]*)>", re.IGNORECASE)
_ATTRIBUTE: Final = re.compile(
    r"""(?<![\w-])(name|type)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE
)
#: A text behind a tag that a head or a label may have.
_HEAD: Final = re.compile(
    r"<(?:th|dt|td|b|strong|label|div|span|p|a)(?:\s[^<>]*)?>\s*+([^<>:]{1,60})(?=[:<]|\Z)",
    re.IGNORECASE,
)
_MOST: Final = 200
_SIZE: Final = 64 * 1024


def note_page(lessons: Lessons, traffic: RequestTraffic, page: str) -> None:
    """Note the fields of a page that take dates, and its heads that are called as fields are: these
    are nobody's names.
    """
    traffic.answers.add("html")
    traffic.dates.update(filter(lessons.name_of, date_inputs(page)))
    text = page[:_SIZE]
    heads = dict[str, str]()
    for one in _HEAD.findall(text):
        head = unescape(one).strip()
        of_field = kind_of(_as_name(head), None) or label_of(head) in _OF_PERSONS
        if of_field and head.isprintable() and len(heads) < _MOST:
            heads.setdefault(label_of(head), head)
    fields = {head: label for label, head in heads.items()}
    read = headed_texts(text.encode("utf-8", "replace"), fields)
    named = {one.field for one in read.places} | read.unread
    traffic.heads = sorted({*traffic.heads, *(heads[label] for label in named)})


#: Heads of columns that are of a kind beside others alone.
_OF_PERSONS: Final = frozenset(("name", "street", "address", "note", "notes", "city"))


def _as_name(head: str) -> str:
    """A head as members are called, in small letters with ``_``."""
    return re.sub(r"\W+", "_", head.casefold()).strip("_")


def date_inputs(page: str) -> list[str]:
    """Names of the fields of a page's forms that take dates."""
    inputs = [dict(_attributes(one)) for one in _INPUT.findall(page)]
    return [
        one["name"] for one in inputs if one.get("type", "").lower() == "date" and "name" in one
    ]


def _attributes(tag: str) -> list[tuple[str, str]]:
    return [(name.lower(), value.strip("'\"")) for name, value in _ATTRIBUTE.findall(tag)]


def page_words(
    heads: Collection[str], fields: Mapping[str, str], dates: Mapping[str, str], *, single: bool
) -> list[str]:
    """Words of a rule about a page. ``fields``: of the entity, with their kinds; ``dates``: those
    with small tokens, with the elements that take them; ``single``: it is about one record.
    """
    words = ["restore: html"]
    if not dates:
        return words
    columns = _columns(heads, fields)
    if single:
        words.append(f"form: {{{_pairs({element: one for one, element in dates.items()})}}}")
        columns = {head: one for head, one in columns.items() if one in dates}
    named = {*columns.values()}
    if not named & dates.keys() or not (single or named - dates.keys()):
        columns = {}  # no token of a date is known among the dates of many records
    if columns:
        words.append(f"columns: {{{_pairs(columns)}}}")
    left = dates.keys() - {*columns.values()}
    if left and not single:
        others = [one for one in fields if one not in left]
        words.append(f"only: [{', '.join(dict.fromkeys(others))}]")
    return words


def _pairs(places: Mapping[str, str]) -> str:
    return ", ".join(f"{json.dumps(name)}: {field}" for name, field in places.items())


def _columns(heads: Collection[str], fields: Mapping[str, str]) -> dict[str, str]:
    """The field that each head names: by its letters, or by a kind that no other field has."""
    by_letters = {_letters(name): name for name in fields}
    columns = dict[str, str]()
    for head in sorted(heads):
        kind = kind_of(_as_name(head), None)
        alike = [name for name, of in fields.items() if kind and of == kind]
        field = by_letters.get(_letters(head)) or (alike[0] if len(alike) == 1 else None)
        if field is not None and field not in columns.values():
            columns[head] = field
    return columns


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))
