"""Brings an instance back from a backup: unpacked, verified to the last byte, then put in place."""

import asyncio
import base64
import errno
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, cast

from proxy.audit import log_segments
from proxy.bootstrap.audit import auditor
from proxy.bootstrap.backup import (
    DATABASE,
    TAR_PIECE,
    BackupContent,
    BackupHead,
    BackupPath,
    ByteCount,
    read_head,
    scratch_folder,
)
from proxy.bootstrap.offline import stopped_vaults
from proxy.bootstrap.open_vault import has_vault, key_source, peek_notes
from proxy.config import FileSettings, Settings, StoreSettings, embedded_files, embedded_store
from proxy.crypto.stream import SealedReader, StreamAead
from proxy.errors import Code, VaultError
from proxy.objectstore import copy_objects, open_objects
from proxy.objectstore.base import OBJECT_NAME
from proxy.objectstore.files import object_path
from proxy.offload import flush_folder
from proxy.storage import open_store
from proxy.storage.notes import NoteWrite
from proxy.storage.transfer import INCOMING, copy_vault, verify_copy
from proxy.vault.maintenance import VaultFindings, verify_vault

#: Note of a database that is being filled.
_FROM_BACKUP: Final = b"a backup"


@dataclass
class RestoreFindings:
    """Findings of a restore in a backup."""

    content: BackupContent
    vault: VaultFindings
    audit_lines: int
    audit_faults: list[str]
    restored: list[Path | str] = field(default_factory=list)  #: files restored to their place

    @property
    def sound(self) -> bool:
        """Whether everything opens and belongs together."""
        return not (self.vault.faults or self.audit_faults or self.content.lost)


def restore_backup(
    settings: Settings, source: BackupPath, progress: ByteCount, *, check: bool = False
) -> RestoreFindings:
    """Unpack a backup, verify every byte of it, and put it where the settings say.

    ``check``: put nothing in place. Nothing is put in place either where anything is wrong, or
    where there is a vault already.

    Raises ``VaultError``: BAD_SETTINGS for a file that is no backup, BAD_STORE if existing data is
    in the way, BAD_KEYS, CANNOT_OPEN for a backup that was changed or cut.
    """
    read_head(source)
    if not check:
        _refuse_occupied(settings)
    above = (settings.store.file or settings.data / DATABASE).parents
    parent = None if check else next(folder for folder in above if folder.is_dir())
    with _not_writable(parent), scratch_folder("restore", parent) as scratch:
        content = _unpack(settings, source, scratch, progress)
        staged = replace(
            settings,
            store=embedded_store(scratch / DATABASE),
            files=embedded_files(scratch / "files"),
            audit=replace(settings.audit, folder=scratch / "audit"),
        )
        findings = asyncio.run(_verify(staged, content))
        if findings.sound and not check:
            _refuse_occupied(settings)
            findings.restored = _put(settings, scratch)
    return findings


@contextmanager
def _not_writable(parent: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        above = parent or f"{tempfile.gettempdir()} (TMPDIR)"
        target = error.filename2 or error.filename or f"a folder in {above}"
        why = error.strerror or error
        remedy = "raise ulimit -f" if error.errno == errno.EFBIG else "make room there"
        raise VaultError(
            Code.NOT_WRITABLE,
            f"The backup cannot be unpacked to {target} ({why}): {remedy}, and try again.",
        ) from error


def _open(source: BackupPath, aead: StreamAead, head: BackupHead) -> BinaryIO:
    reader = SealedReader(source.open("rb"), aead, base64.b64decode(head.salt))
    return cast(BinaryIO, io.BufferedReader(reader, TAR_PIECE))


def _unpack(
    settings: Settings, source: BackupPath, scratch: Path, progress: ByteCount
) -> BackupContent:
    head = read_head(source)
    source_of_key = key_source(settings.keys)
    if not source_of_key.exists():
        raise VaultError(
            Code.BAD_KEYS,
            f"There is no key at {settings.keys.locator}, and a backup holds none: put the copy of "
            f"master key {head.master} there, or name its place with the setting `keys`.",
        )
    master = source_of_key.load()
    if head.master not in (master.id, *master.others):
        raise VaultError(
            Code.BAD_KEYS,
            f"The backup was made with master key {head.master}, but the key source holds "
            f"{master.id}: point the setting `keys` at a copy of that key.",
        )
    content = BackupContent(head)
    for folder in ("files", "audit"):
        (scratch / folder).mkdir(mode=0o700)
    try:
        with _open(source, master.files(), head) as opened:
            for size in _unpack_members(opened, scratch, content):
                progress(size)
            while opened.read(TAR_PIECE):  # to the end, which tells that nothing was cut off
                pass
    except tarfile.TarError:
        raise VaultError(
            Code.CANNOT_OPEN, f"{source} is damaged: its content ends early."
        ) from None
    if not content.database:
        raise VaultError(Code.CANNOT_OPEN, f"{source} is damaged: there is no database in it.")
    return content


def _unpack_members(opened: BinaryIO, scratch: Path, content: BackupContent) -> Iterator[int]:
    with tarfile.open(fileobj=opened, mode="r|") as tar:
        for member in tar:
            _unpack_member(tar, member, scratch, content)
            yield member.size


def _unpack_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, scratch: Path, content: BackupContent
) -> None:
    name = PurePosixPath(member.name)
    kind = name.parts[0] if name.parts else ""
    file = tar.extractfile(member)
    if file is None or name.is_absolute() or ".." in name.parts:
        raise VaultError(Code.CANNOT_OPEN, "The backup holds a name that no backup has.")
    path = scratch / name
    if kind == "files" and OBJECT_NAME.fullmatch(name.name):
        path = object_path(scratch / kind, name.name)
        content.objects += 1
    elif kind == "audit":
        content.audit += name.suffix == ".jsonl"
    elif kind in ("rules", "schemas", "policies"):
        content.declared += 1
    elif str(name) == DATABASE:
        content.database = member.size
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        shutil.copyfileobj(file, written, TAR_PIECE)
        written.flush()
        os.fsync(written.fileno())


async def _verify(staged: Settings, content: BackupContent) -> RestoreFindings:
    if any(map(log_segments, staged.chain_folders())):
        log = (await auditor(staged)).verify()
        lines, faults = log.lines, [f"{one.file}:{one.line}: {one.text}" for one in log.faults]
    else:
        lines, faults = 0, []
    async with stopped_vaults(staged) as vaults:
        findings = await verify_vault(vaults, lambda _what, _count: None)
    return RestoreFindings(content, findings, lines, faults)


def _occupied(settings: Settings) -> list[str]:
    file = settings.store.file
    # SQLite would apply the log of another database to the restored one; an empty one is left by
    # those who read
    logs = [file.with_name(f"{file.name}{end}") for end in ("-wal", "-journal")] if file else []
    logs = [log for log in logs if log.exists() and log.stat().st_size]
    paths = filter(None, (file, *logs, settings.files.folder, settings.audit.folder))
    labels = [str(path) for path in paths if _holds_something(path)]
    if settings.store.file is None and has_vault(settings) and not _is_unfinished(settings):
        labels.append(settings.store.label)
    if settings.files.folder is None and asyncio.run(_mark(settings)) is not None:
        labels.append(settings.files.label)
    return labels


def _holds_something(path: Path) -> bool:
    """Whether a file is there, or a folder with more than a new volume has."""
    if path.is_dir():
        return any(one.name != "lost+found" for one in path.iterdir())
    return path.is_file()


def _is_unfinished(settings: Settings) -> bool:
    """Whether a restore to that database was cut off: the next one goes on with it."""
    return peek_notes(settings).get(INCOMING) == _FROM_BACKUP


async def _mark(settings: Settings) -> str | None:
    """The mark of the vault that the files belong to."""
    objects = await open_objects(settings.files.uri, own=False)
    try:
        return await objects.owner()
    finally:
        await objects.close()


def _refuse_occupied(settings: Settings) -> None:
    if occupied := _occupied(settings):
        raise VaultError(
            Code.BAD_STORE,
            f"There is something at {', '.join(occupied)}, and a restore overwrites "
            "nothing: stop the instance and move that away, or name another folder for the data.",
        )


def _put(settings: Settings, scratch: Path) -> list[Path | str]:
    """Move the unpacked files to their places, the database last: it completes the vault."""
    restored: list[Path | str] = []
    moves: list[tuple[Path, Path]] = [(scratch / "audit", settings.audit.folder)]
    if settings.files.folder is not None:
        moves.insert(0, (scratch / "files", settings.files.folder))
    else:
        asyncio.run(_upload(embedded_files(scratch / "files"), settings.files))
        restored.append(settings.files.label)
    for name in ("rules", "schemas", "policies"):
        target: Path | None = getattr(settings, name)
        unpacked = scratch / name
        if target is not None and not target.exists() and unpacked.exists():
            only = list(unpacked.iterdir())
            single = len(only) == 1 and only[0].name == target.name
            moves.append((only[0] if single else unpacked, target))
    if settings.store.file is not None:
        moves.append((scratch / DATABASE, settings.store.file))
    for unpacked, target in moves:
        if target == settings.store.file:
            os.sync()  # what was copied to other volumes
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _move(unpacked, target)
        restored.append(target)
    if settings.store.file is None:
        asyncio.run(_fill(embedded_store(scratch / DATABASE), settings.store))
        restored.append(settings.store.label)
    return restored


def _move(unpacked: Path, target: Path) -> None:
    """Move a file, or a folder: to the root of a volume, which cannot be replaced, its content."""
    if os.path.ismount(target):
        for path in unpacked.iterdir():
            shutil.move(path, target / path.name)
        flush_folder(target)
        return
    if target.is_dir():
        target.rmdir()  # empty, as was looked at before
    shutil.move(unpacked, target)
    flush_folder(target.parent)


async def _upload(unpacked: FileSettings, files: FileSettings) -> None:
    """Copy objects, and at last their mark."""
    async with AsyncExitStack() as stack:
        source, target = await open_objects(unpacked.uri), await open_objects(files.uri)
        for objects in (source, target):
            stack.push_async_callback(objects.close)
        await copy_objects(source, target, lambda _count: None)
        if (mark := await source.owner()) is not None:
            await target.claim(mark)


async def _fill(unpacked: StoreSettings, store: StoreSettings) -> None:
    """Copy a database to an engine on a server; until that is done nothing starts on it."""
    async with AsyncExitStack() as stack:
        source, target = await open_store(unpacked.uri), await open_store(store.uri)
        for opened in (source, target):
            stack.push_async_callback(opened.close)
        before = (await target.read_notes((INCOMING,))).get(INCOMING)
        await target.write_notes([NoteWrite(INCOMING, _FROM_BACKUP, before)])
        await copy_vault(source, target, lambda _part, _count: None)
        await verify_copy(source, target, lambda _part, _count: None)
        await target.write_notes([NoteWrite(INCOMING, None, _FROM_BACKUP)])
