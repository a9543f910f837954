"""Correction of proxied records over the vault's interface (GDPR, articles 16, 17).

The application keeps the tokens that it has, and from now on they open to the corrected values. So
a correction can change values and take fields away, and nothing that the application would have to
know: how many values a field has, and fields whose tokens follow from their values.

It takes the record's lock as proxied requests do: an update in flight ends first, and the later
acknowledged one wins. Fields of an update in doubt cannot be corrected before an answer of the
application has decided it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.record import Action, Record, RecordDraft
from proxy.model.values import step
from proxy.storage.changes import AddVersion, Change, ForgetReplies, Replace, StageRow, Unstage
from proxy.storage.rows import SEEN_IN_PAGE, Row, Staged
from proxy.tokenization.base import Resolution
from proxy.vault.body import RecordBody, TokenizedValue, changed, next_generation
from proxy.vault.collection import Collection
from proxy.vault.earlier_values import erased
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.proxied.promotion import rebase
from proxy.vault.proxied.token_entries import outdated
from proxy.vault.records.commit import COMMIT_TRIES, ExtraChanges, attempt, locked, overtaken
from proxy.vault.records.repository import Records
from proxy.vault.records.sent_back import (
    check_condition,
    check_stated,
    may_read,
    refuse_masks,
    without_unchanged,
)
from proxy.vault.records.visibility import RowPolicyCheck

_Stored = tuple[TokenizedValue, ...]
_SAME: Final = (
    "Equal values of this field have equal tokens, by which the application finds them: change it "
    "through the application, or take it away here (null)."
)
_CLEAR: Final = "The application holds this value itself (shape plain): change it there."
_FEWER: Final = (
    "The application holds another number of values here: send as many, or change them through the "
    "application."
)
_OTHER_TYPE: Final = "The application holds no text here: send a value of the same JSON type."
_UNSEEN: Final = "Several values can be corrected only by who is shown them as they are."


async def correct_record(
    records: Records, draft: RecordDraft, by: str, closing: ExtraChanges
) -> Record | None:
    """Give a record that the proxy has collected the values of the draft, a text or a list of texts
    each, ``None`` to take a field away; ``None`` where there is no such record.

    Raises ``VaultError``: ``ACCESS_DENIED``; ``INVALID_RECORD`` with a detail for each value that
    the record cannot take; ``CONFLICT`` where an update of such a field is in doubt, or the record
    kept changing; ``CANNOT_OPEN``; and what conditions raise.
    """
    key = draft.key or ""
    for act in (Act.WRITE, Act.READ):
        await records.permit(act, (key,))
    for _ in range(COMMIT_TRIES):
        async with locked(records, (records.collection.key_hash(key),)):
            row = (await records.by_key((key,))).get(key)
            before = (
                None
                if row is None
                else (await RowPolicyCheck(records).considering([row])).open(row)
            )
            await check_condition(records, before)
            if row is None or before is None:
                return None
            await check_stated(records, draft, before, readable=may_read(records))
            sent = without_unchanged(records, draft, before, readable=may_read(records))
            refuse_masks(records, (sent,))
            following, changes = await _corrected(records, row, sent, by)
            record = records.open(following)
            if await attempt(records, [*changes, *closing((record,))]):
                records.collection.observe("updated")
                records.note_written((record,), (sent,))
                records.note_shown((key,))
                return record
    raise overtaken(records)


async def _corrected(
    records: Records, row: Row, draft: RecordDraft, by: str
) -> tuple[Row, list[Change]]:
    """The next version of the row, and the changes that make it so."""
    collection = records.collection
    rows = {row.rid: row}
    staged = (await collection.staged_beside(rows)).get(row.rid, ())
    row = rows[row.rid]
    opened = [(one, collection.sealer.open_staged(one, row.salt)) for one in staged]
    doubtful = [(one, version) for one, version in opened if version is not None]
    before = collection.sealer.open(row)
    start = next_generation([before, *(version for _, version in doubtful)])
    values = _values(records, draft, before, start)
    # earlier versions that a redirect left are no newer than what is corrected
    newer = [version for staged, version in doubtful if staged.at < SEEN_IN_PAGE]
    _refuse_doubtful(records, draft, before, newer)
    now = max(collection.clock(), row.updated_at)
    start += sum(map(len, values.values()))
    doubtful, likewise, start = _likewise(doubtful, before, values, start)
    content = RecordBody(
        {name: several for name, several in values.items() if several},
        start,
        action=Action.UPDATE,
        by=by,
        at=now,
        deleted=before.deleted,
        until=before.until,
        earlier=_earlier(draft, before, values, doubtful),
        written=before.written | dict.fromkeys(draft.fields, collection.context.sequence()),
    )
    collection.parts.check(content)
    following = collection.sealer.with_body(
        row._replace(version=row.version + 1, updated_at=now, cells=collection.cells(content)),
        content,
    )
    RowPolicyCheck(records).refuse(following, records.contents(content, draft.key)[0], draft.at)
    # what is taken away goes from those, too: an erasure leaves nothing
    erased = {name for name in draft.fields if not content.values.get(name)}
    rebased = rebase(collection, row, doubtful, (before, content), erased)
    ended = [of for at, of in doubtful if at.sid in rebased.gone]
    changes: list[Change] = [AddVersion(records.outlived(row))] if records.keeps_history else []
    changes += [Replace(following, row.version), *rebased.changes]
    sealer = collection.sealer.record(row.rid, row.salt)
    for one, version in doubtful:
        if one.sid in likewise - rebased.gone:
            again = one._replace(sid=collection.context.sequence())
            changes += [Unstage(row.rid, one.sid), StageRow(sealer.staged(again, version))]
    changes += collection.parts.moves(row.rid, before, content)
    left = [content, *rebased.left, *(one for at, one in doubtful if at.sid not in rebased.gone)]
    changes += await outdated(collection, row.rid, (before, *ended), left)
    if before.values.keys() - content.values.keys():
        changes.append(ForgetReplies(row.rid))  # answers of the interface that are kept show it
        collection.state.retired.forget(row.rid)  # and so do versions that were replaced lately
    return following, changes


def _likewise(
    doubtful: Sequence[tuple[Staged, RecordBody]],
    before: RecordBody,
    values: Mapping[str, _Stored],
    start: int,
) -> tuple[list[tuple[Staged, RecordBody]], set[int], int]:
    """The versions in doubt, earlier ones that a redirect left with the corrected texts under their
    own tokens, for the application may have either; which these are, and the next number.

    ``values``: as corrected, numbered up to ``start``.
    """
    fresh = {name for name, several in values.items() if several is not before.values.get(name)}
    versions, corrected = [], set[int]()
    for staged, version in doubtful:
        fields: dict[str, _Stored] = {}
        earlier = staged.at >= SEEN_IN_PAGE
        for name in fresh & changed(before.values, version.values) if earlier else ():
            own, new = version.values.get(name, ()), values[name]
            if own and [one.json for one in own] == [one.json for one in new]:
                fields[name] = tuple(
                    msgspec.structs.replace(one, number=start + at, text=new[at].text)
                    for at, one in enumerate(own)
                )
                start += len(own)
        if fields:
            corrected.add(staged.sid)
        versions.append((staged, adopt(version, fields, start) if fields else version))
    return versions, corrected, start


def _earlier(
    draft: RecordDraft,
    before: RecordBody,
    values: Mapping[str, _Stored],
    doubtful: Sequence[tuple[Staged, RecordBody]],
) -> dict[str, _Stored]:
    """The earlier values that stay. Of what is taken away the tokens are left, also of a version
    in doubt: the application may show them, and each would look like a value.
    """
    earlier = dict(before.earlier)
    for name in draft.fields:
        if values.get(name):
            continue
        versions = [before.earlier, before.values, *(version.values for _, version in doubtful)]
        of = {one.token: one for version in versions for one in version.get(name, ())}
        earlier[name] = erased(of.values())
    return {name: of for name, of in earlier.items() if of}


def _values(
    records: Records, draft: RecordDraft, before: RecordBody, start: int
) -> dict[str, _Stored]:
    """All values of the record with those of the draft among them, numbered from ``start`` on.

    Who is not shown a value writes it anew also where it is the stored one: nothing tells them
    apart, or guesses could be tried.
    """
    values: dict[str, _Stored] = dict(before.values)
    faults: list[Detail] = []
    unseen = records.rights.unseen(draft.fields) if may_read(records) else {*draft.fields}
    for name, sent in draft.fields.items():
        stored = before.values.get(name, ())
        texts = [] if sent is None else sent if isinstance(sent, list) else [sent]
        blind = bool(texts) and name in unseen
        if texts == [one.text for one in stored] and not blind:
            continue
        fault = _fault(records, name, texts, stored)
        if fault:
            faults.append(Detail(draft.at + step(name), fault))
            continue
        values[name] = tuple(
            msgspec.structs.replace(one, number=start + at, text=text)
            if blind or text != one.text
            else one
            for at, (one, text) in enumerate(zip(stored, texts, strict=False))
        )
        start += len(texts)
    if faults:
        raise VaultError(
            Code.INVALID_RECORD,
            f"Records of {records.name!r} are written by the application behind the proxy. Here "
            "values can be corrected whose tokens may stay as they are.",
            tuple(faults),
        )
    return values


def _fault(records: Records, name: str, texts: Sequence[str], stored: _Stored) -> str:
    """Describe why the field cannot take these values; empty if it can."""
    tokenizer = records.collection.tokenizers[name]
    if tokenizer.resolution is Resolution.CLEAR:
        return _CLEAR
    if not texts:
        return ""
    if tokenizer.same:
        return _SAME
    if len(texts) != len(stored):
        return _FEWER
    if len(texts) > 1 and not records.rights.shows_value(name):
        return _UNSEEN
    fits = all(
        not one.json or _json_type(one.text) is _json_type(text)
        for one, text in zip(stored, texts, strict=True)
    )
    return "" if fits else _OTHER_TYPE


def refuse_changed(
    collection: Collection, writes: Iterable[StagedWrite], marks: Sequence[bytes]
) -> None:
    """Refuse a request of the application's callers on records that have changed since they were
    read: values that share their token with those before, or were corrected. The application could
    not tell.

    ``marks``: of the records as they were read (``Collection.mark``; empty: without any), or ``@``
    and the milliseconds until which they may have been corrected. Raises
    ``VaultError(PRECONDITION_FAILED)``.
    """
    until = int(marks[0][1:]) if marks[0][:1] == b"@" else None
    for write in writes:
        live = write.live
        if live is None and write.row is not None:
            live = collection.sealer.open(write.row)
        if until is not None:
            fits = live is None or live.at <= until
        else:
            untold = b"" in marks and live is not None and not live.at  # as it may have been then
            fits = untold or (live is not None and collection.mark(write.rid, live) in marks)
        if not fits:
            raise VaultError(
                Code.PRECONDITION_FAILED,
                "Nothing was done. The record has changed since it was read: read it again.",
            )


def _json_type(text: str) -> type[Any] | None:
    """``float`` for any number; ``None`` for an invalid JSON value."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return float if type(value) is int else type(value)


def _refuse_doubtful(
    records: Records, draft: RecordDraft, before: RecordBody, versions: Sequence[RecordBody]
) -> None:
    """Raise ``VaultError(CONFLICT)`` where the application may hold another value by now."""
    names: Mapping[str, object] = draft.fields
    if any(changed(before.values, version.values) & names.keys() for version in versions):
        raise VaultError(
            Code.CONFLICT,
            f"Nothing was done. An update of this record of {records.name!r} is in doubt: nobody "
            "knows yet whether the application took it. Read the record through the proxy, which "
            "decides that, and correct it then.",
        )
