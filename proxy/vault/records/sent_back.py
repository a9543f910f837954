"""Values that a client sends back as it was shown them: masks, redactions, ``version`` …

A record from an answer may be changed and sent back whole. Its visible forms then mean no change: a
redacted or masked text stands for the stored value, and ``created_at``, ``updated_at``,
``version``, ``attachments`` and ``meta`` are accepted if they equal the stored ones. Others are
refused: a mask is no value, and only the service sets those members.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from proxy.clock import to_wire
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.query import CREATED_AT, UPDATED_AT, VERSION_FIELD
from proxy.model.record import Attachment, Record, RecordDraft
from proxy.model.schema import STATED_VERSION
from proxy.model.values import Unfit, instant, step
from proxy.vault.records.attachment_metadata import with_attachments
from proxy.vault.records.repository import Records

_ATTACHMENTS: Final = "attachments"
_META: Final = "meta"
_LINK: Final = "download_link"


def without_unchanged(
    records: Records, draft: RecordDraft, before: Record, *, readable: bool
) -> RecordDraft:
    """Return the draft without unchanged visible forms of the record, so that these values stay.

    ``readable``: the caller may read it.
    """
    unchanged = records.rights.unchanged(before, draft.fields, readable=readable)
    if (
        draft.stated
        and before.fields.get(STATED_VERSION) is None
        and draft.fields.get(STATED_VERSION) == before.version
    ):
        # none was stated, and the service's own count was shown instead
        unchanged |= {STATED_VERSION}
    return without(draft, unchanged)


def without(draft: RecordDraft, names: Collection[str]) -> RecordDraft:
    """The draft without these fields; those ``kept`` in a whole record are not cleared."""
    if not names:
        return draft
    fields = {name: value for name, value in draft.fields.items() if name not in names}
    return msgspec.structs.replace(
        draft, fields=fields, preserved=draft.preserved | frozenset(names)
    )


def refuse_masks(records: Records, drafts: Iterable[RecordDraft]) -> None:
    """Raise ``VaultError(INVALID_RECORD)`` for masked texts that were sent as values."""
    if not records.rights.veils:
        return
    text = (
        "Is a masked text, and not what is shown in place of the stored value: send a value, or "
        "leave the field out."
    )
    faults = [
        Detail(draft.at + step(name), text)
        for draft in drafts
        for name in records.rights.masked(draft.fields)
        if not draft.copied
    ]
    if faults:
        raise VaultError(
            Code.INVALID_RECORD, "A masked text is no value; nothing was stored.", tuple(faults)
        )


def refuse_stated(drafts: Iterable[RecordDraft]) -> None:
    """Raise ``VaultError(INVALID_RECORD)`` where new records have members that the service sets."""
    faults = [
        Detail(draft.at + step(name), "Is set by the service and cannot be sent.")
        for draft in drafts
        for name in draft.stated
    ]
    if faults:
        raise VaultError(Code.INVALID_RECORD, "The record does not fit its schema.", tuple(faults))


async def check_stated(
    records: Records, draft: RecordDraft, before: Record, *, readable: bool
) -> None:
    """Raise ``VaultError(INVALID_RECORD)`` unless the service's members are unchanged."""
    if not draft.stated:
        return
    if not readable:
        refuse_stated((draft,))
    if _ATTACHMENTS in draft.stated:
        (before,) = await with_attachments(records, (before,))
    visible = records.rights.render(before)
    faults = [
        Detail(
            draft.at + step(name),
            "Is set by the service: may only be sent back as it is now. Read again, or leave it "
            "out.",
        )
        for name, value in draft.stated.items()
        if not _equals(records, visible, name, value)
    ]
    if faults:
        raise VaultError(
            Code.INVALID_RECORD, "The record is not sent back as it is stored.", tuple(faults)
        )


async def check_condition(records: Records, before: Record | None) -> None:
    """Raise what ``Records.condition`` says of a record to be changed, or of none."""
    if records.condition is not None:
        records.condition(
            None if before is None else (await with_attachments(records, (before,)))[0]
        )


def may_read(records: Records) -> bool:
    """Whether the caller is shown records at all."""
    return records.rights.allows(Act.READ)


def _equals(records: Records, visible: Record, name: str, value: Any) -> bool:
    if name in (CREATED_AT, UPDATED_AT):
        try:
            return instant(value) == (
                visible.created_at if name == CREATED_AT else visible.updated_at
            )
        except Unfit:
            return False
    if name == VERSION_FIELD:
        return isinstance(value, int) and not isinstance(value, bool) and value == visible.version
    if name == _META:
        # what was in doubt as it was read may have been decided since
        meta: dict[str, Any] = {"redacted_fields": records.rights.redacted_fields, "in_doubt": True}
        if visible.deleted_at is not None:
            meta["deleted_at"] = to_wire(visible.deleted_at)
        return isinstance(value, dict) and bool(value) and value.items() <= meta.items()
    wanted = [_attachment(item) for item in visible.attachments]
    return (
        isinstance(value, list)
        and len(value) == len(wanted)
        and all(map(_same_file, value, wanted))
    )


def _attachment(item: Attachment) -> dict[str, Any]:
    members = msgspec.structs.asdict(item)
    return {**members, CREATED_AT: to_wire(item.created_at), UPDATED_AT: to_wire(item.updated_at)}


def _same_file(sent: Any, stored: Mapping[str, Any]) -> bool:
    """Whether it is the file as it is shown.

    Where it is downloaded depends on the address that showed it.
    """
    if not isinstance(sent, dict) or not str(sent.get(_LINK, f"/{stored['file_id']}")).endswith(
        f"/{stored['file_id']}"
    ):
        return False
    return bool({name: value for name, value in sent.items() if name != _LINK} == stored)
