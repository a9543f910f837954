"""Conditional requests (RFC 9110, section 13): ``If-Match`` and ``If-None-Match`` on records and on
the contents of attachments.

Entity tags here are strong. That of a record is made of its version, its files, and the rights of
the caller (``Records.entity_tag``), so that a masked view and a clear one never share one; that of
a content is its hash.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from aiohttp import web

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.record import Record
from proxy.vault.records.repository import Records

_TAG: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\U0010ffff]*"'
_LIST: Final = re.compile(rf"[ \t]*(?:{_TAG})?(?:[ \t]*,[ \t]*(?:{_TAG})?)*[ \t]*")
_ONE: Final = re.compile(_TAG)
_ANY: Final = "*"
IF_MATCH: Final = "If-Match"
IF_NONE_MATCH: Final = "If-None-Match"


class Preconditions(NamedTuple):
    """What a request asks of the present state; ``None``: nothing. ``*`` stands for any tag at all."""

    match: frozenset[str] | None
    none_match: frozenset[str] | None

    def changes(self, tag: str | None) -> None:
        """Raise ``VaultError(PRECONDITION_FAILED)`` unless what has this tag (``None``: it is not
        there) may be changed.
        """
        if self.match is not None and (tag is None or not self.match & {_ANY, tag}):
            raise _failed(
                "It is not (any more) what If-Match names: read it again, and decide anew."
            )
        if (
            self.none_match is not None
            and tag is not None
            and not self.none_match.isdisjoint({_ANY, tag, f"W/{tag}"})
        ):
            raise _failed("If-None-Match asks that there is nothing of the kind, and there is.")

    def unchanged(self, tag: str) -> bool:
        """Whether a read has to be answered with 304.

        Raises ``VaultError(PRECONDITION_FAILED)`` where ``If-Match`` does not hold.
        """
        if self.match is not None and not self.match & {_ANY, tag}:
            raise _failed("It is not (any more) what If-Match names.")
        return self.none_match is not None and not self.none_match.isdisjoint(
            {_ANY, tag, f"W/{tag}"}
        )


def asked(request: web.Request) -> Preconditions | None:
    """The conditions of a request, where it has any.

    Raises ``VaultError(INVALID_INPUT)`` for what is no list of entity tags.
    """
    headers = request.headers
    if IF_MATCH not in headers and IF_NONE_MATCH not in headers:
        return None
    return Preconditions(_tags(request, IF_MATCH), _tags(request, IF_NONE_MATCH))


def guarded(request: web.Request, records: Records) -> Records:
    """The records, changed only where the conditions of the request hold.

    Who may not read was given no tag, and none fits.
    """
    conditions = asked(request)
    if conditions is None:
        return records
    seen = records.rights.allows(Act.READ)

    def condition(record: Record | None) -> None:
        conditions.changes(None if record is None else records.entity_tag(record) if seen else '""')

    check: Callable[[Record | None], None] = condition
    return records.when(check)


def _tags(request: web.Request, name: str) -> frozenset[str] | None:
    given = request.headers.getall(name, [])
    if not given:
        return None
    text = ",".join(given)
    if text.strip() == _ANY:
        return frozenset((_ANY,))
    tags = _ONE.findall(text)
    if not tags or _LIST.fullmatch(text) is None:
        detail = Detail(
            name,
            'Has to be *, or entity tags with commas between them: "a", "b" (RFC 9110, section '
            "13.1).",
        )
        raise VaultError(
            Code.INVALID_INPUT, "The condition of the request cannot be read.", (detail,)
        )
    return frozenset(tags)


def _failed(text: str) -> VaultError:
    return VaultError(Code.PRECONDITION_FAILED, f"Nothing was done. {text}")
