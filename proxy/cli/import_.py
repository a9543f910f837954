"""``domicile import``: records from JSON Lines or CSV into a schema of a running instance, in
batches, resumable.

Each batch is sent with an ``Idempotency-Key`` made of the file and the position in it, and the
progress stands in a small file beside it. After a crash of either side the same command resumes
there, and no batch is stored twice.
"""

import contextlib
import hashlib
import io
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from proxy.cli import SUMMARIES, command, remote
from proxy.cli.command import FAULT, OK, Arguments, Command, argument, argument_list, progress
from proxy.cli.options import records_arguments
from proxy.cli.record_files import (
    FORMATS,
    FileRecord,
    SealedFileHead,
    Types,
    open_sealed_file,
    sealed_file_head,
)
from proxy.config import load_settings
from proxy.crypto.stream import StreamAead
from proxy.errors import Code, Detail, VaultError
from proxy.model import ALIASES, COUNTRY
from proxy.model.query import CREATED_AT, UPDATED_AT, VERSION_FIELD
from proxy.model.schema import RECORDS_SCHEMA, STATED_VERSION

# Records of the record-based family as hosted services of this kind export them, in the names of
# the schema ``records``.
#
# Such a record has other names for some fields, states its country, and has members that the
# service itself sets. The model-based operations, by which an import stores, take none of these. A
# record of another country than the instance's is refused.

#: Names in files -> names in the schema.
_NAMES: Final = {**ALIASES, VERSION_FIELD: STATED_VERSION}

#: Members that the service sets; no import takes them.
_OF_THE_SERVICE: Final = frozenset((CREATED_AT, UPDATED_AT, "attachments"))


def with_names(schema: str, types: Types) -> Types:
    """The types of fields, by the names in files, too."""
    if schema != RECORDS_SCHEMA:
        return types
    return {**types, **{name: types[field] for name, field in _NAMES.items() if field in types}}


def translated_records(
    instance: remote.Remote, schema: str, entries: Iterator[FileRecord]
) -> Iterator[FileRecord]:
    """The records of a file in the names of their schema; those of other schemas as they are."""
    if schema != RECORDS_SCHEMA:
        yield from entries
        return
    countries: dict[Any, bool] = {}
    for entry in entries:
        if entry.record is None:
            yield entry
        elif not _ours(instance, entry.record.get(COUNTRY), countries):
            fault = "this record is kept in another country than this instance's"
            yield FileRecord(entry.line, None, fault, entry.record)
        else:
            yield _translated(entry.line, entry.record)


def _translated(line: int, record: dict[str, Any]) -> FileRecord:
    fields: dict[str, Any] = {}
    for name, value in record.items():
        if name != COUNTRY and name not in _OF_THE_SERVICE:
            field_name = _NAMES.get(name, name)
            if fields.setdefault(field_name, value) != value:
                fault = f"{name} says something else than another name of it"
                return FileRecord(line, None, fault, record)
    return FileRecord(line, fields)


def _ours(instance: remote.Remote, country: Any, countries: dict[Any, bool]) -> bool:
    """Whether the instance keeps records of that country; asked once for each."""
    if country is None:
        return True
    if not isinstance(country, str):
        return False
    if country not in countries:
        answer = instance.ask(
            "POST", "/api/records/find", {COUNTRY: country, "options": {"limit": 1}}
        )
        if answer.status not in (200, 400, 409):
            raise remote.refusal_of(answer)
        countries[country] = answer.status == 200
    return countries[country]


#: Records of one request; the instance may take fewer.
_BATCH: Final = 100

_encode = msgspec.json.Encoder(decimal_format="number").encode

#: Faults that are listed; a file with more of them has one cause.
_MOST_FAULTS: Final = 20


class _Mark(msgspec.Struct):
    """Progress of an import; stands in ``<file>.import`` until it is complete."""

    file: str  #: what tells this content from another one
    schema: str
    instance: str
    done: int = 0  #: records
    created: int = 0
    updated: int = 0
    skipped: int = 0


@dataclass(slots=True)
class _Job:
    """An import under way."""

    instance: remote.Remote
    schema: str
    existing: str  #: treatment of existing keys: ``refuse``, ``skip``, ``update``
    mark: _Mark
    mark_file: Path
    #: where the lines of records go that cannot be taken; none: the import stops there
    rejects: Path | None
    faults: list[Detail] = field(default_factory=list)
    rejected: int = 0

    @property
    def stopped(self) -> bool:
        return bool(self.rejected) and self.rejects is None


def run(arguments: Arguments) -> int:
    """Import; status 1 when a record could not be taken, with the line of each."""
    file: Path = arguments.file
    head = _sealed(file)
    kind = arguments.format or file.suffix.removeprefix(".").lower()
    if head is not None:
        kind = head.format
    if kind not in FORMATS:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"The kind of {file.name} is not known: name it with --format {' or '.join(FORMATS)}.",
        )
    try:
        with contextlib.closing(remote.remote(arguments)) as instance:
            mark_file = file.with_name(file.name + ".import")
            mark = _begun(file, mark_file, arguments, instance)
            schema = arguments.schema
            job = _Job(instance, schema, arguments.existing, mark, mark_file, arguments.rejects)
            types = with_names(schema, types_of(instance, schema))
            with _text(file, head, arguments) as text:
                entries = FORMATS[kind].read(text, types)
                _import_all(job, translated_records(instance, schema, entries))
    except UnicodeDecodeError:
        raise VaultError(Code.BAD_SETTINGS, f"{file} is not UTF-8: convert it first.") from None
    except ValueError as error:  # the head of a table
        raise VaultError(Code.BAD_SETTINGS, f"{file}: {error}.") from None
    except OSError as error:
        raise VaultError(Code.BAD_SETTINGS, f"{file} cannot be read ({error.strerror}).") from None
    return _report(job, arguments)


def _sealed(file: Path) -> SealedFileHead | None:
    try:
        return sealed_file_head(file)
    except OSError as error:
        raise VaultError(Code.BAD_SETTINGS, f"{file} cannot be read ({error.strerror}).") from None


def _text(file: Path, head: SealedFileHead | None, arguments: Arguments) -> TextIO:
    """Return the text of a file, decrypted if it is sealed."""
    if head is None:
        return file.open(encoding="utf-8", newline="")
    opened = open_sealed_file(file, head, key_of(arguments))
    return io.TextIOWrapper(io.BufferedReader(opened), "utf-8", newline="")


def key_of(arguments: Arguments) -> StreamAead:
    """Return the cipher of files of this vault.

    Raises ``VaultError(BAD_KEYS)`` without its master key.
    """
    from proxy.bootstrap.open_vault import key_source

    return key_source(load_settings(arguments.config, os.environ).keys).load().files()


def types_of(instance: remote.Remote, schema: str) -> Types:
    """Type of each field of a schema by name. Raises ``VaultError`` as the instance answers."""
    fields = instance.content("GET", f"/api/schemas/{schema}")["fields"]
    return {name: described["type"] for name, described in fields.items()}


def _begun(file: Path, mark_file: Path, arguments: Arguments, instance: remote.Remote) -> _Mark:
    """The mark of this very import, if one was begun; a new one otherwise."""
    status = file.stat()
    identity = f"{file.name} {status.st_size} {status.st_mtime_ns}"
    fresh = _Mark(hashlib.sha256(identity.encode()).hexdigest(), arguments.schema, instance.url)
    if not mark_file.exists():
        return fresh
    mark = msgspec.json.decode(mark_file.read_bytes(), type=_Mark)
    if (mark.file, mark.schema, mark.instance) != (fresh.file, fresh.schema, fresh.instance):
        raise VaultError(
            Code.CONFLICT,
            f"{mark_file} belongs to an import of another content, schema or instance: remove it "
            "to begin anew.",
        )
    return mark


def _import_all(job: _Job, entries: Iterator[FileRecord]) -> None:
    bar = progress(f"import {job.schema}", None, "records", job.mark.done)
    rest = itertools.islice(entries, job.mark.done, None)
    try:
        while not job.stopped and (batch := list(itertools.islice(rest, _BATCH))):
            _import_batch(job, batch)
            if not job.stopped:
                job.mark.done += len(batch)
                command.write_file(job.mark_file, (msgspec.json.encode(job.mark),))
                bar.update(len(batch))
    finally:
        bar.close()
    if not job.stopped:
        with contextlib.suppress(FileNotFoundError):
            job.mark_file.unlink()


def _import_batch(job: _Job, batch: list[FileRecord]) -> None:
    """Store one batch without its invalid records; nothing of it if these stop the import."""
    unread = [entry for entry in batch if entry.record is None]
    _reject(job, [(entry, Detail(f"line {entry.line}", entry.fault)) for entry in unread])
    left = [entry for entry in batch if entry.record is not None]
    while left and not job.stopped:
        answer = _sent(job, left)
        if answer.status == 201:
            job.mark.created += len(left)
            return
        faults = _faults(answer, left)
        at = {entry.line for entry, _ in faults}
        if answer.status == 409 and job.existing != "refuse":
            _existing(job, [entry for entry in left if entry.line in at])
        else:
            _reject(job, faults)
        left = [entry for entry in left if entry.line not in at]


def _existing(job: _Job, entries: list[FileRecord]) -> None:
    """Treat records whose key exists already as ``existing`` says."""
    if job.existing == "skip":
        job.mark.skipped += len(entries)
        return
    while entries and not job.stopped:
        answer = _sent(job, entries, "batch/update")
        if answer.status == 201:
            job.mark.updated += len(entries)
            return
        faults = _faults(answer, entries)
        _reject(job, faults)
        at = {entry.line for entry, _ in faults}
        entries = [entry for entry in entries if entry.line not in at]


def _reject(job: _Job, faults: list[tuple[FileRecord, Detail]]) -> None:
    job.faults += [fault for _, fault in faults][: max(0, _MOST_FAULTS - len(job.faults))]
    job.rejected += len({entry.line for entry, _ in faults})
    if job.rejects is not None and faults:
        entries = {entry.line: entry for entry, _ in faults}.values()
        # the record, or the raw text of an unreadable one
        contents = (entry.unread if entry.record is None else entry.record for entry in entries)
        try:
            with open(job.rejects, "ab", opener=_private) as file:
                file.writelines(_encode(content) + b"\n" for content in contents)
        except OSError as error:
            raise VaultError(
                Code.NOT_WRITABLE, f"{job.rejects} cannot be written ({error.strerror})."
            ) from None


def _private(path: str, flags: int) -> int:
    """The file is for its owner alone where it is made: it holds what people are."""
    return os.open(path, flags, 0o600)


def _sent(job: _Job, entries: list[FileRecord], action: str = "batch") -> remote.RemoteAnswer:
    content = [entry.record for entry in entries]
    lines = ",".join(str(entry.line) for entry in entries)
    key = hashlib.sha256(f"{job.mark.file} {job.schema} {action} {lines}".encode()).hexdigest()[:40]
    return job.instance.ask(
        "POST", f"/api/models/{job.schema}/{action}", content, {"Idempotency-Key": f"import-{key}"}
    )


def _faults(
    answer: remote.RemoteAnswer, entries: list[FileRecord]
) -> list[tuple[FileRecord, Detail]]:
    """Return the faults of a refused batch, each with its record; raise any other error."""
    refusal = remote.refusal_of(answer)
    faults: list[tuple[FileRecord, Detail]] = []
    for source, text in refusal.details:
        _, number, *rest = source.split("/") if source.startswith("/") else ("", "")
        if not number.isdigit() or int(number) >= len(entries):
            raise refusal
        entry = entries[int(number)]
        faults.append(
            (entry, Detail(f"line {entry.line}{''.join(f' /{part}' for part in rest)}", text))
        )
    if not faults:
        raise refusal
    return faults


def _report(job: _Job, arguments: Arguments) -> int:
    mark = job.mark
    data: dict[str, Any] = {
        "schema": mark.schema,
        "created": mark.created,
        "updated": mark.updated,
        "skipped": mark.skipped,
        "rejected": job.rejected,
        "complete": not job.stopped,
        "faults": [{"source": source, "text": text} for source, text in job.faults],
    }
    counts = (
        f"{mark.created} created, {mark.updated} updated, {mark.skipped} skipped, {job.rejected} "
        "rejected"
    )
    lines = [f"{mark.schema}: {counts}", *command.detail_lines(job.faults)]
    if job.stopped:
        lines.append(
            "Stopped there. Fix the file and import it anew with --existing skip, or go on past "
            "such records with --rejects."
        )
    command.show(arguments, data, lines)
    return FAULT if job.rejected else OK


_arguments: Final = argument_list(
    records_arguments("the schema that the records belong to"),
    argument("--existing", choices=("refuse", "skip", "update"), default="refuse",
        help="what becomes of a record whose key is used: refuse (the default), skip, or update"),
    argument("--rejects", type=Path, metavar="FILE",
        help="add what cannot be taken to this file, as JSON Lines, and go on; a line that cannot "
        "be read stands there as text"),
    argument("file", type=Path, metavar="FILE",
        help="JSON Lines or CSV, or what domicile export made"),
)  # fmt: skip

COMMAND: Final = Command(SUMMARIES["import"],
    "domicile import --schema contact contacts.csv", run, _arguments)  # fmt: skip
