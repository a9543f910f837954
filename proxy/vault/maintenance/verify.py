"""Verification of a vault: whether everything opens, and all references hold.

For a vault that no instance runs on. Nothing is changed. Faults name a schema and the internal
number of a record (its ``rid``), and never a value. Data that a running instance removes is no
fault, and is counted separately.
"""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from proxy.errors import CannotOpen
from proxy.model.record import DEFAULT, Record
from proxy.model.schema import Schema
from proxy.objectstore.base import SHARDS, NoObject
from proxy.storage.query import All, Indexed, Is, Select
from proxy.storage.rows import ERASED_AT, File, Row, RowState
from proxy.vault.attachment_content import Contents
from proxy.vault.attachments.object_cleanup import named_objects
from proxy.vault.collection import TableSpec
from proxy.vault.records.attachment_metadata import name_hash, open_file
from proxy.vault.records.repository import Records
from proxy.vault.schema_store import Entries, Origin, placed_schemas
from proxy.vault.schemas.migration import migrated_records
from proxy.vault.seal import Tampered
from proxy.vault.vault import Vault

#: Hears of progress: (``records`` or ``attachments``, how many more).
Tell = Callable[[str, int], object]

_PAGE = 200
_ALTERED = "Rows are not those that were committed: some were put back, removed or added."
_LARGEST = 2**63 - 1


class VaultFault(NamedTuple):
    """Something that is not as it was written."""

    schema: str
    rid: int  #: number of the record
    text: str
    environment: str = DEFAULT


@dataclass
class VaultFindings:
    """Result of a verification: counts, faults, and objects that wait for removal."""

    #: records, versions, staged, attachments, bytes
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[VaultFault] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)  #: doomed and orphaned objects
    notes: list[str] = field(default_factory=list)  #: names of those that are not as written last


class Subject(NamedTuple):
    """A table to verify.

    ``settled``: no migration is rewriting it, and no rules decide which columns there are, so that
    columns have to agree with bodies.
    """

    records: Records
    settled: bool


async def verify_vault(vaults: Sequence[tuple[Vault, Contents]], tell: Tell) -> VaultFindings:
    """Verify every record of these environments with its parts, and every byte of every attachment.

    They have to be all of one store: an object that none of them names counts as left over. Raises
    what store and object store raise.
    """
    findings = VaultFindings(notes=sorted(await vaults[0][0].store.check_notes()))
    for vault, contents in vaults:
        for name in await vault.altered():
            findings.faults.append(VaultFault(name, 0, _ALTERED, vault.environment))
        for subject in await _subjects(vault):
            await _records(subject, findings, tell)
            await _attachments(subject, contents, findings, tell)
    await _objects(vaults, findings)
    return findings


async def extent(vaults: Sequence[tuple[Vault, Contents]]) -> int:
    """Count the records, for a progress bar."""
    return sum(
        [
            (await vault.store.count(table))[0]
            for vault, _ in vaults
            for table in (await placed_schemas(vault.store, vault.environment)).values()
        ]
    )


async def _subjects(vault: Vault) -> list[Subject]:
    """Every table of the vault, by its active definition if there is one."""
    entries = Entries(vault.store, vault.environment)
    await entries.load()
    subjects: list[Subject] = []
    for name in await placed_schemas(vault.store, vault.environment):
        entry = entries.schemas.get(name)
        if entry is not None:
            settled = entry.change is None and entry.origin is not Origin.RULES
            subjects.append(Subject(await migrated_records(vault, entry), settled))
        else:
            bare = await vault.collection(TableSpec(Schema(name, ()), {}, None, addressed=False))
            subjects.append(Subject(Records(bare), settled=False))
    return subjects


# ---------------------------------------------------------------------- records


async def _records(subject: Subject, findings: VaultFindings, tell: Tell) -> None:
    collection = subject.records.collection
    async for rows in _pages(subject.records):
        for row in rows:
            text = await _fault_of(subject, row)
            if text is not None:
                findings.faults.append(_fault(subject.records, row.rid, text))
            await _past(subject.records, row, findings)
        staged = await collection.store.staged(
            collection.table, [row.rid for row in rows if row.staged]
        )
        salts = {row.rid: row.salt for row in rows}
        for change in [one for group in staged.values() for one in group]:
            findings.counts["staged"] += 1
            if not _opens(partial(collection.sealer.open_staged, change, salts[change.rid])):
                findings.faults.append(
                    _fault(subject.records, change.rid, "A staged change does not open.")
                )
        number = sum(row.updated_at < ERASED_AT for row in rows)
        findings.counts["records"] += number
        tell("records", number)


async def _pages(records: Records) -> AsyncIterator[list[Row]]:
    after = 0
    while rows := await records.collection.store.scan(records.collection.table, after, _PAGE):
        yield rows
        after = rows[-1].rid


async def _fault_of(subject: Subject, row: Row) -> str | None:
    """Describe the fault of a row, if any."""
    records = subject.records
    try:
        record = records.open(row)
    except CannotOpen as error:
        if isinstance(error, Tampered):
            return "A column, or the state, is not what is sealed in the record."
        return "The record does not open."
    if (
        row.key is not None
        and record.key is not None
        and records.collection.key_hash(record.key) != row.key
    ):
        return "The record is found by another key than its own."
    if not subject.settled:
        return None
    if records.cells(record.fields) != row.cells:
        return "A column holds something else than the record."
    return await _fault_of_index(records, row, record)


async def _fault_of_index(records: Records, row: Row, record: Record) -> str | None:
    hashes = tuple(records.hashes(record.fields))
    if not hashes or row.state is not RowState.LIVE or records.two_roots:
        return None
    question = Select(All((Is("@rid", (row.rid,)), Indexed(hashes))), now=0, limit=1, counted=False)
    page = await records.collection.store.select(records.collection.table, question)
    return None if page.rows else "The record is missing in the index of parts."


async def _past(records: Records, row: Row, findings: VaultFindings) -> None:
    if row.key is None:
        return
    collection, offset = records.collection, 0
    while True:
        page, total = await collection.store.past(collection.table, row.key, _PAGE, offset)
        findings.counts["versions"] += len(page)
        for past in page:
            if not _opens(partial(collection.sealer.open, past)):
                findings.faults.append(_fault(records, past.rid, "A past version does not open."))
        offset += len(page)
        if not page or offset >= total:
            return


def _opens(opening: Callable[[], object]) -> bool:
    try:
        opening()
    except CannotOpen:
        return False
    return True


# ---------------------------------------------------------------------- attachments


async def _attachments(
    subject: Subject, contents: Contents, findings: VaultFindings, tell: Tell
) -> None:
    records, after = subject.records, b""
    collection = records.collection
    while files := await collection.store.file_scan(collection.table, after, _PAGE):
        rows = await collection.store.rows(collection.table, [file.rid for file in files])
        for file in files:
            text = await _fault_of_file(records, contents, rows.get(file.rid), file)
            if text is not None:
                findings.faults.append(_fault(records, file.rid, text))
            findings.counts["attachments"] += 1
            findings.counts["bytes"] += file.size
            tell("attachments", 1)
        after = files[-1].file_id


async def _fault_of_file(
    records: Records, contents: Contents, row: Row | None, file: File
) -> str | None:
    """Describe the fault of a file, if any: row, name, content, length, hash."""
    if row is None:
        return "An attachment belongs to a record that is gone."
    try:
        opened = open_file(records.collection, row, file)
        if name_hash(records.collection, opened.attachment.filename) != file.name:
            return "An attachment is found by another name than its own."
        content = await contents.open(opened.stored, records.collection.sealer.scope)
    except NoObject:
        return "The content of an attachment is missing."
    except CannotOpen:
        return "An attachment does not open."
    digest = hashlib.sha256()
    try:
        async for piece in content.pieces():
            digest.update(piece)
    except CannotOpen:
        return "The content of an attachment does not open."
    finally:
        content.close()
    return (
        None
        if digest.hexdigest() == opened.attachment.hash
        else "The content of an attachment has another hash."
    )


async def _objects(vaults: Sequence[tuple[Vault, Contents]], findings: VaultFindings) -> None:
    """Count the objects that no row names: doomed ones, and those of unfinished uploads."""
    first, contents = vaults[0]
    doomed = set(await first.store.doomed(_LARGEST))
    for shard in SHARDS:
        nameless = {stored.name for stored in await contents.objects.listed(shard)}
        for vault, _ in vaults:
            if nameless:
                nameless -= await named_objects(vault.store, vault.environment, shard)
        findings.left["orphaned"] += len(nameless - doomed)
        findings.left["doomed"] += len(nameless & doomed)


def _fault(records: Records, rid: int, text: str) -> VaultFault:
    return VaultFault(records.name, rid, text, records.collection.context.environment)
