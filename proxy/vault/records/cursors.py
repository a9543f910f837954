"""Cursors of pages: the place where a page ended, sealed, so that it tells nothing and cannot be
made or changed.

A cursor is bound to the client who got it, its rights, the schema with its definition, and the
question where the request has it once more: nobody else can use it, nor anybody for something else.
"""

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.vault.records.repository import Records


def seal_cursor(records: Records, place: bytes, context: bytes) -> str:
    """The cursor of a place."""
    return records.cursors.seal(place, context)


def opened(records: Records, cursor: str, context: bytes, refusal: tuple[Code, str]) -> bytes:
    """The place of a cursor.

    Raises ``VaultError`` as ``refusal`` says: with that code, at that place of the request.
    """
    try:
        return records.cursors.open(cursor, context)
    except VaultError:
        code, at = refusal
        raise VaultError(
            code,
            "The cursor cannot be used: it was changed, belongs to another client, schema or "
            "question, or the schema or the "
            "rights of the client have changed since; ask the question anew.",
            (Detail(at, "Is no cursor of this client for this question."),),
        ) from None


def bound(records: Records, client: str, question: bytes = b"") -> bytes:
    """The context of cursors that count for this client, its rights, this definition of the schema,
    and the question.
    """
    definition = msgspec.json.encode(records.schema)
    return b"%b\x00%b%b%b" % (client.encode(), definition, records.rights.mark.encode(), question)
