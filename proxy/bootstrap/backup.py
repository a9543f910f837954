"""A backup of an instance in one sealed file, made while it runs; ``restore`` is the way back.

A backup is one line of JSON that identifies it without any value, followed by a sealed stream
(``crypto.stream``) under the master key, bound to that line. Its content is a tar (POSIX.1-2001) of
``files/`` (sealed objects), ``audit/`` (the log), ``rules/``, ``schemas/`` and ``policies/`` as
configured, and last ``vault.db``: a snapshot of the database whose objects are all in the backup.
The format is the same for every engine and object store, so a backup can be restored to others. It
does not contain the master key.
"""

import asyncio
import base64
import contextlib
import fcntl
import io
import os
import shutil
import signal
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

from proxy import __version__
from proxy.audit import log_end, log_segments, parse_line, recall
from proxy.bootstrap.audit import CHAIN, memory_of
from proxy.bootstrap.offline import open_offline
from proxy.bootstrap.open_vault import country_of, key_source, refuse_no_vault
from proxy.config import Settings, embedded_store
from proxy.crypto.aead import SALT_BYTES
from proxy.crypto.prf import random_bytes
from proxy.crypto.stream import LONGEST_HEAD, StreamSealer
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT
from proxy.objectstore import open_objects
from proxy.objectstore.base import SHARDS, NoObject, ObjectStore
from proxy.objectstore.bucket_path import BucketPath
from proxy.offload import flush_folder
from proxy.storage import engine_of, open_store
from proxy.storage.sqlite.file import snapshot
from proxy.storage.transfer import copy_vault
from proxy.vault.attachments import named_objects
from proxy.vault.schemas import wake

#: A file of a folder, or of a bucket.
BackupPath = Path | BucketPath

#: Told how many bytes more were written or read.
ByteCount = Callable[[int], object]

VERSION: Final = 1
DATABASE: Final = "vault.db"
_OWNER: Final = "files/owner"
#: Snapshots after which an object that each of them names, and that is not there, counts as lost.
_ROUNDS: Final = 4
#: In the folder of a running command, which has it locked.
_LOCK: Final = "lock"
#: Seconds after which an empty folder is not one that is about to get its lock.
_UNLOCKED: Final = 60.0
#: Bytes of the tar that are sealed in one go.
TAR_PIECE: Final = 1 << 20


class BackupHead(msgspec.Struct, frozen=True):
    """The first line of a backup."""

    domicile: str
    version: int
    program: str  #: the version that made it
    at: str  #: RFC 3339, UTC
    country: str
    master: str  #: id of the master key that opens it
    salt: str  #: base64


@dataclass
class BackupContent:
    """Content of a backup."""

    head: BackupHead
    database: int = 0  #: bytes
    objects: int = 0
    audit: int = 0  #: files of the log
    declared: int = 0  #: files of rules, schemas and policies
    #: Objects that rows name and that were not there: lost before the backup was made.
    lost: list[str] = field(default_factory=list)


def read_head(source: BackupPath) -> BackupHead:
    """Read the head of a backup. Raises ``VaultError(BAD_SETTINGS)`` for any other file."""
    try:
        with source.open("rb") as file:
            line = file.readline(LONGEST_HEAD)
    except OSError as error:
        raise VaultError(
            Code.BAD_SETTINGS, f"{source} cannot be read ({error.strerror})."
        ) from None
    try:
        head = msgspec.json.decode(line, type=BackupHead)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        head = None
    if head is None or head.domicile != "backup":
        raise VaultError(Code.BAD_SETTINGS, f"{source} is not a backup made by `domicile backup`.")
    if head.version != VERSION:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"{source} was made by a newer version of domicile: restore it with that one.",
        )
    return head


def make_backup(settings: Settings, target: BackupPath, progress: ByteCount) -> BackupContent:
    """Write a backup to a file that is not there yet; it takes its name when it is complete.

    It holds every write that was acknowledged before the call. Raises ``VaultError``: BAD_STORE,
    BAD_KEYS, BAD_SETTINGS where the file is there already, NOT_WRITABLE.
    """
    refuse_no_vault(settings)
    master = key_source(settings.keys).load()
    if target.exists():
        raise VaultError(
            Code.BAD_SETTINGS, f"{target} is there already: name another file, or remove it."
        )
    salt = random_bytes(SALT_BYTES)
    head = BackupHead(
        "backup",
        VERSION,
        __version__,
        datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        country_of(settings),
        master.id,
        base64.b64encode(salt).decode(),
    )
    line = msgspec.json.encode(head) + b"\n"
    sealer = master.files().sealer(salt, line)
    with _not_writable(target), _new_file(target) as (file, scratch):
        file.write(line + sealer.header)
        content = BackupContent(head)
        sealed = cast(BinaryIO, _Sealed(file, sealer, progress))
        with (
            asyncio.Runner() as runner,
            tarfile.open(fileobj=sealed, mode="w|", bufsize=TAR_PIECE) as tar,
        ):
            _Backup(settings, tar, content, scratch).write(runner)
        file.write(sealer.finish())
    return content


@contextlib.contextmanager
def _not_writable(target: BackupPath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise VaultError(
            Code.NOT_WRITABLE, f"{target} cannot be written ({error.strerror})."
        ) from error


@contextlib.contextmanager
def _new_file(target: BackupPath) -> Iterator[tuple[BinaryIO, Path]]:
    """A draft that becomes the file durably, and a scratch folder."""
    if isinstance(target, BucketPath):
        with scratch_folder("backup", None) as scratch, target.create() as file:
            yield file, scratch
        return
    with scratch_folder("backup", target.parent) as scratch:
        draft = scratch / "draft"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file, scratch
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        flush_folder(target.parent)


@contextlib.contextmanager
def scratch_folder(purpose: str, parent: Path | None) -> Iterator[Path]:
    """A folder for the time of a command, in ``parent`` or that for temporary files.

    Those of commands that were killed are removed first: each is as large as a vault. A running
    command has its own one locked. SIGTERM ends a command as Ctrl-C does: its folder goes with it.
    """
    prefix = f".domicile-{purpose}-"
    above = Path(tempfile.gettempdir()) if parent is None else parent
    for left in above.glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError), left.open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(left.parent)
            shutil.rmtree(left.parent, ignore_errors=True)
    for empty in above.glob(f"{prefix}*"):  # of one that was killed before it had a lock, or after
        with contextlib.suppress(OSError):
            if time.time() - empty.stat().st_mtime > _UNLOCKED:
                empty.rmdir()
    with _ending_in_order(), tempfile.TemporaryDirectory(prefix=prefix, dir=above) as name:
        with Path(name, _LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield Path(name)
            finally:
                _empty(Path(name))


def _empty(folder: Path) -> None:
    """Remove all but the lock, which says whose the rest is: whoever is killed here leaves it."""
    for one in folder.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one, ignore_errors=True)
        elif one.name != _LOCK:
            one.unlink(missing_ok=True)


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Unwind at SIGTERM, where nothing else was said of it."""
    own = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if own:
        signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        if own:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


class _Sealed:
    """Output of ``tarfile``, which seals the archive."""

    def __init__(self, file: BinaryIO, sealer: StreamSealer, progress: ByteCount) -> None:
        self._file, self._sealer, self._progress = file, sealer, progress

    def write(self, content: bytes) -> int:
        self._file.write(self._sealer.update(content))
        self._progress(len(content))
        return len(content)


class _Backup:
    """A backup in the making."""

    def __init__(
        self, settings: Settings, tar: tarfile.TarFile, content: BackupContent, scratch: Path
    ) -> None:
        self._settings, self._tar, self._content = settings, tar, content
        self._database = scratch / DATABASE
        self._objects: set[str] = set()
        self._log: list[tuple[Path, int]] = []  #: its files, and how much of each is copied
        self._last_lines: dict[Path, int] = {}  #: of each of its chains, by folder

    def write(self, runner: asyncio.Runner) -> None:
        """Write everything; the database last, when every object that it names is in."""
        runner.run(self._copy_objects())
        self._copy_audit()
        for name in ("rules", "schemas", "policies"):
            self._copy_declared(name, getattr(self._settings, name))
        self._content.database = self._add(DATABASE, self._database)

    async def _copy_objects(self) -> None:
        """Copy the mark of the files, and the objects that a snapshot names. Those that were
        removed meanwhile, because their file was deleted, make the next snapshot necessary.
        """
        lost: set[str] | None = None
        objects = await open_objects(self._settings.files.uri, own=False)
        try:
            if (mark := await objects.owner()) is not None:
                content = f"{mark}\n".encode()
                self._tar.addfile(_member(_OWNER, len(content)), io.BytesIO(content))
            for _ in range(_ROUNDS):
                named, checkpoints = await self._take_snapshot()
                fresh = sorted(named - self._objects)
                missing = {name for name in fresh if not await self._copy_object(objects, name)}
                lost = missing if lost is None else lost & missing
                behind = any(checkpoints[one] > n for one, n in self._last_lines.items())
                if not missing and not behind:
                    break
        finally:
            await objects.close()
        self._content.lost = sorted(lost or ())

    async def _take_snapshot(self) -> tuple[set[str], dict[Path, int]]:
        """Copy the database, and note how far the audit log was before; gives the objects that the
        copy names, and the line of each chain of the log that it says is on the disk.
        """
        self._log, self._last_lines = [], {}
        for folder in self._settings.chain_folders():
            ends = [(path, log_end(path)) for path in log_segments(folder)]
            self._log += [(path, end.size) for path, end in ends]
            lines = [parse_line(end.last) for _, end in ends if end.last]
            self._last_lines[folder] = lines[-1].n if lines and lines[-1] is not None else 0
        for path in self._database.parent.glob(f"{DATABASE}*"):
            path.unlink()
        await _copy_database(self._settings, self._database)
        return await _look_into(self._settings, self._database)

    async def _copy_object(self, objects: ObjectStore, name: str) -> bool:
        """Copy an object by way of a file, since a bucket has it piece by piece."""
        try:
            opened = await objects.open(name)
        except NoObject:
            return False
        try:
            with tempfile.TemporaryFile(dir=self._database.parent) as file:
                for at in range(0, opened.size, TAR_PIECE):
                    file.write(await opened.read(at, TAR_PIECE))
                file.seek(0)
                self._tar.addfile(_member(f"files/{name}", opened.size), file)
        finally:
            opened.close()
        self._objects.add(name)
        self._content.objects += 1
        return True

    def _copy_audit(self) -> None:
        """Copy the log as of the copy of the database.

        Later lines may describe a later database, and a restored one would count as rolled back.
        """
        try:
            root = self._settings.audit.folder
            for path, size in self._log:
                self._add(f"audit/{path.relative_to(root).as_posix()}", path, size)
                self._content.audit += 1
            for name in (folder / CHAIN for folder in self._last_lines if folder != root):
                self._add(f"audit/{name.relative_to(root).as_posix()}", name)
        except FileNotFoundError:  # its lines have expired just now
            raise VaultError(
                Code.CONFLICT, "The audit log has let an old file go meanwhile: try again."
            ) from None

    def _copy_declared(self, name: str, root: Path | None) -> None:
        if root is None or not root.exists():
            return
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            within = path.relative_to(root) if root.is_dir() else Path(root.name)
            if path.is_file() and not any(part.startswith(".") for part in within.parts):
                self._add(f"{name}/{within.as_posix()}", path)
                self._content.declared += 1

    def _add(self, name: str, path: Path, size: int | None = None) -> int:
        """Add a file, or its first bytes; return the number of bytes added."""
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            member = _member(name, status.st_size if size is None else size, int(status.st_mtime))
            self._tar.addfile(member, file)
        return member.size


def _member(name: str, size: int, at: int | None = None) -> tarfile.TarInfo:
    """Return the archive entry of a file of that size, readable by its owner only."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    member.mtime = int(time.time()) if at is None else at
    return member


async def _copy_database(settings: Settings, target: Path) -> None:
    """Write the vault as it is at one moment to a new SQLite file, whatever engine has it."""
    if settings.store.file is not None:
        snapshot(settings.store.file, target)
        return
    engine, location = engine_of(settings.store.uri)
    async with engine.snapshot(location, target.parent) as source:
        copy = await open_store(embedded_store(target).uri)
        try:
            await copy_vault(source, copy, lambda _part, _count: None)
        finally:
            await copy.close()


async def _look_into(settings: Settings, database: Path) -> tuple[set[str], dict[Path, int]]:
    """The objects that a copied database names, and the last line of each audit chain in it."""
    names: set[str] = set()
    copied = replace(settings, store=embedded_store(database))
    async with open_offline(copied) as (store, _, keysets):
        for environment in keysets:
            await wake(store, environment)
            for shard in SHARDS:
                names |= await named_objects(store, environment, shard)
        remembered = {
            folder: (await recall(memory_of(store, keysets[DEFAULT], folder))).checkpoint.n
            for folder in settings.chain_folders()
        }
    return names, remembered
