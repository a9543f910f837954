"""Brings an instance back from a backup: unpacked, verified to the last byte, then put in place."""

import asyncio
import base64
import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from proxy.audit.files import flush_folder, log_segments
from proxy.bootstrap.audit import auditor
from proxy.bootstrap.backup import (
    DATABASE,
    LONGEST_HEAD,
    TAR_PIECE,
    BackupContent,
    BackupHead,
    ByteCount,
    read_head,
)
from proxy.bootstrap.offline import stopped_vaults
from proxy.bootstrap.storage import key_source
from proxy.config import Settings, embedded_files, embedded_store
from proxy.crypto.stream import SealedReader, StreamAead
from proxy.errors import Code, VaultError
from proxy.objectstore.base import OBJECT_NAME
from proxy.objectstore.files import object_path
from proxy.vault.maintenance import VaultFindings, verify_vault


@dataclass
class RestoreFindings:
    """What a restore has found in a backup."""

    content: BackupContent
    vault: VaultFindings
    audit_lines: int
    audit_faults: list[str]
    restored: list[Path] = field(default_factory=list)  #: what was put in its place

    @property
    def sound(self) -> bool:
        """Whether everything opens and belongs together."""
        return not (self.vault.faults or self.audit_faults or self.content.lost)


def restore_backup(
    settings: Settings, source: Path, progress: ByteCount, *, check: bool = False
) -> RestoreFindings:
    """Unpack a backup, verify every byte of it, and put it where the settings say.

    ``check``: put nothing in place. Nothing is put in place either where anything is wrong, or
    where there is a vault already.

    Raises ``VaultError``: BAD_SETTINGS for what is no backup, BAD_STORE where something is in the
    way, BAD_KEYS, CANNOT_OPEN for a backup that was changed or cut.
    """
    read_head(source)
    if not check:
        _refuse_occupied(settings)
    parent = None if check else _nearest(settings.store.path)
    with tempfile.TemporaryDirectory(prefix=".domicile-restore-", dir=parent) as name:
        scratch = Path(name)
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


def _open(source: Path, aead: StreamAead, head: BackupHead) -> BinaryIO:
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(source.open("rb"))
        line = file.readline(LONGEST_HEAD)
        reader = SealedReader(file, aead, base64.b64decode(head.salt), line)
        stack.pop_all()
    return cast(BinaryIO, io.BufferedReader(reader, TAR_PIECE))


def _unpack(settings: Settings, source: Path, scratch: Path, progress: ByteCount) -> BackupContent:
    head = read_head(source)
    source_of_key = key_source(settings.keys)
    if not source_of_key.exists():
        raise VaultError(
            Code.BAD_KEYS,
            f"There is no key at {settings.keys.place}, and a backup holds none: put the copy of "
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
        content.audit += 1
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
    if staged.audit.folder.exists() and log_segments(staged.audit.folder):
        log = (await auditor(staged)).verify()
        lines, faults = log.lines, [f"{one.file}:{one.line}: {one.text}" for one in log.faults]
    else:
        lines, faults = 0, []
    async with stopped_vaults(staged) as vaults:
        findings = await verify_vault(vaults, lambda _what, _count: None)
    return RestoreFindings(content, findings, lines, faults)


def _occupied(settings: Settings) -> list[Path]:
    places = [settings.store.path, settings.files.path, settings.audit.folder]
    return [path for path in places if path.is_file() or (path.is_dir() and any(path.iterdir()))]


def _refuse_occupied(settings: Settings) -> None:
    if occupied := _occupied(settings):
        raise VaultError(
            Code.BAD_STORE,
            f"There is something at {', '.join(map(str, occupied))}, and a restore overwrites "
            "nothing: stop the instance and move that away, or name another folder for the data.",
        )


def _put(settings: Settings, scratch: Path) -> list[Path]:
    """Put what was unpacked in its places, the database last: with it the vault is there."""
    moves: list[tuple[Path, Path]] = [
        (scratch / "files", settings.files.path),
        (scratch / "audit", settings.audit.folder),
    ]
    for name in ("rules", "schemas", "policies"):
        target: Path | None = getattr(settings, name)
        unpacked = scratch / name
        if target is not None and not target.exists() and unpacked.exists():
            only = list(unpacked.iterdir())
            single = len(only) == 1 and only[0].name == target.name
            moves.append((only[0] if single else unpacked, target))
    moves.append((scratch / DATABASE, settings.store.path))
    for unpacked, target in moves:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if target.is_dir():
            target.rmdir()  # empty, as was looked at before
        shutil.move(unpacked, target)
        flush_folder(target.parent)
    return [target for _, target in moves]


def _nearest(path: Path) -> Path:
    """The nearest folder above a path that is there."""
    return next(folder for folder in path.parents if folder.is_dir())
