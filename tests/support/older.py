"""Rows as a version of the program sealed them whose bodies bound no columns."""

from proxy.storage.changes import Change, ReplaceCiphertext, SealedPart
from proxy.storage.rows import Row, Staged, StagedKind
from proxy.vault.body import pack
from proxy.vault.seal import Sealer


def older_row(sealer: Sealer, row: Row) -> Row:
    """The row with the body and the key that an earlier version would have sealed."""
    body, key = sealer.open_with_key(row)
    sealed = None
    if row.key_sealed is not None and row.key is not None:
        context = sealer._context(b"k", row.rid, 0)
        sealed = sealer._aead.seal((key or "").encode(), row.salt, context)
    return row._replace(body=sealer.past_body(row, body, row.version), key_sealed=sealed)


def older_change(sealer: Sealer, change: Staged, salt: bytes) -> Staged:
    """The same of a change that is staged beside the row with that salt."""
    content = sealer.open_staged(change, salt)
    if content is None or change.kind is StagedKind.DELETE:
        return change._replace(body=b"")
    context = sealer._context(b"s", change.rid, change.sid)
    return change._replace(body=sealer._aead.seal(pack(content), salt, context))


def put_back(before: Row, after: Row) -> Change:
    """What puts the sealed bytes of a row in place of others."""
    return ReplaceCiphertext(
        SealedPart.ROW,
        (before.rid,),
        (before.body, before.key_sealed),
        (after.body, after.key_sealed),
    )


def put_back_change(before: Staged, after: Staged) -> Change:
    """The same of a staged change."""
    place = (before.sid, before.rid)
    return ReplaceCiphertext(SealedPart.STAGED, place, (before.body,), (after.body,))
