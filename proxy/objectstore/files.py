"""Objects as files in a folder of a local disk.

Under the folder: ``ab/`` with the objects whose names begin so, ``incoming/`` with those being
written, ``owner`` with the mark of the vault, and ``.lock``, held by the process that uses the
folder. An object is written to ``incoming``, flushed, renamed into its place, and the place
flushed: a visible name has its whole content, also after a power cut.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from proxy.errors import Code, VaultError
from proxy.objectstore.base import OBJECT_NAME, NoObject, ObjectStore, StoredObject
from proxy.offload import flush_folder

# Threads for work on files off the event loop; a caller never leaves before its thread is done.

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Runs at most so many pieces of work at a time; further ones wait."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="files")

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run ``work`` on a thread; return or raise its outcome.

        A thread cannot be stopped. So who is cancelled waits for it: else a descriptor would be
        closed under it, and its number given to another file.
        """
        return await _ended(self.begin(lambda: work(*arguments, **named)))

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Begin ``work`` on a thread; who begins it waits for it in any case, as ``run`` does."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Finish the pending work. Idempotent."""
        self._pool.shutdown(wait=True)


async def _ended(future: asyncio.Future[T]) -> T:
    """The result, when the thread is done."""
    cancelled = await _settled(future)
    if cancelled is not None:
        raise cancelled
    return future.result()


async def _settled(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for the thread in any case; return the cancellation that arrived, if any."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    future.exception()  # perhaps no waiter is left
    return cancelled


#: Files that are written or read at the same moment; a disk gains nothing from more.
_THREADS = 8

#: Bytes after which the system is told to begin writing to the disk, so that the final flush is
#: short.
_EARLY = 8 << 20

_INCOMING = "incoming"
_OWNER = "owner"
_FULL = "The disk of the files is full: free some space. The file was not stored."
_LOCKED = "The folder of the files has become read-only: make it writable. The file was not stored."
_GONE = "The folder of the files is not there any more: put it back, or mount its disk."
#: Error number: what to tell. Others tell their name.
_TEXTS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "A file of this process may not be as large: raise ulimit -f. It was not stored.",
    errno.EROFS: _LOCKED,
    errno.EACCES: _LOCKED,
    errno.EPERM: _LOCKED,
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
}


class _Opened:
    def __init__(self, threads: Threads, descriptor: int) -> None:
        self._threads = threads
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    async def read(self, at: int, length: int) -> bytes:
        with _translated():
            return await self._threads.run(_read, self._descriptor, at, length)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class FolderObjects:
    """The folder, owned by this process until ``close``, or read beside its owner.

    ``shared``: owned together with other replicas.
    """

    def __init__(self, folder: Path, *, own: bool = True, shared: bool = False) -> None:
        self._folder = folder
        self._incoming = folder / _INCOMING
        self._lock = _claim(folder, shared=shared) if own else -1
        self._threads = Threads(_THREADS)
        self._writing: set[str] = set()

    async def close(self) -> None:
        self._threads.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def put(self, name: str, pieces: AsyncIterable[Iterable[bytes | memoryview]]) -> int:
        draft, path = self._incoming / name, self._path(name)
        self._writing.add(name)
        try:
            descriptor = await self._run(_create, draft)
            try:
                written = _Written(descriptor)
                await self._write(written, pieces)
                await self._run(os.fsync, descriptor)
            finally:
                os.close(descriptor)
            await self._run(_settle, draft, path)
        except BaseException:
            await self._run(_forget, draft)
            raise
        finally:
            self._writing.discard(name)
        return written.size

    async def _write(
        self, written: "_Written", pieces: AsyncIterable[Iterable[bytes | memoryview]]
    ) -> None:
        """Write each piece while the next one arrives.

        What ``pieces`` raises, such as a connection that breaks, is not ours to translate.
        """
        writing: asyncio.Future[None] | None = None
        try:
            async for piece in pieces:
                if writing is not None:
                    await _ended(writing)
                writing = self._threads.begin(partial(written.add, piece))
        except BaseException:
            if writing is not None:
                await _settled(writing)  # its descriptor is closed next
            raise
        if writing is not None:
            await _ended(writing)

    async def open(self, name: str) -> _Opened:
        try:
            descriptor = await self._run(os.open, self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        except VaultError as error:
            await self._refuse_all_but_absence(error)
            raise NoObject from None
        return _Opened(self._threads, descriptor)

    async def delete(self, name: str) -> None:
        try:
            await self._run(os.unlink, self._path(name))
        except VaultError as error:
            await self._refuse_all_but_absence(error)

    async def listed(self, shard: str) -> list[StoredObject]:
        try:
            return sorted(await self._run(_listed, self._folder / shard, shard))
        except VaultError as error:
            await self._refuse_all_but_absence(error)
            return []

    async def clear(self, before: int) -> int:
        drafts = await self._run(_listed, self._incoming, "")
        left = [
            draft.name for draft in drafts if draft.at < before and draft.name not in self._writing
        ]
        for name in left:
            await self._run(_forget, self._incoming / name)
        return len(left)

    async def owner(self) -> str | None:
        return await self._run(_mark, self._folder / _OWNER)

    async def claim(self, owner: str) -> None:
        await self._run(_set_mark, self._incoming / _OWNER, self._folder / _OWNER, owner)

    async def release(self) -> None:
        await self._run(_remove_mark, self._folder / _OWNER)

    async def _run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        with _translated():
            return await self._threads.run(work, *arguments, **named)

    def _path(self, name: str) -> Path:
        return object_path(self._folder, name)

    async def _refuse_all_but_absence(self, error: VaultError) -> None:
        """Tell a missing object from a missing folder: an unmounted disk has lost nothing."""
        if not isinstance(error.__cause__, FileNotFoundError) or not await self._run(
            self._incoming.exists
        ):
            raise error


def object_path(folder: Path, name: str) -> Path:
    """The file of an object in such a folder."""
    if not OBJECT_NAME.fullmatch(name):
        raise ValueError("the name of an object is 48 hexadecimal digits")
    return folder / name[:2] / name[2:]


async def open_folder(location: str, own: bool, shared: bool = False) -> ObjectStore:
    """Open the folder of that path, which its owner makes where it is missing.

    Raises ``VaultError``: NOT_WRITABLE where it cannot be made or written, STORE_BUSY where another
    process has it.
    """
    return FolderObjects(Path(location), own=own, shared=shared)


def _claim(folder: Path, *, shared: bool) -> int:
    """Return the descriptor that holds the lock of the folder; create missing folders."""
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            flush_folder(folder.parent)
        incoming = folder / _INCOMING
        if not incoming.is_dir():
            incoming.mkdir(mode=0o700)
            flush_folder(folder)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise VaultError(
            Code.NOT_WRITABLE,
            f"{folder} cannot be written: give its owner the right to, or name another folder "
            "with the setting files.",
        ) from error
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise VaultError(
            Code.STORE_BUSY,
            f"Another process uses the files in {folder}: end it, or give this one a folder of "
            "its own.",
        ) from error
    return lock


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = _TEXTS.get(error.errno or 0)
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        raise VaultError(
            Code.FILES_UNAVAILABLE,
            text or f"The files cannot be read or written ({name}): look at their disk.",
        ) from error


# ---------------------------------------------------------------------- in threads


def _create(draft: Path) -> int:
    return os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


class _Written:
    """A draft on its way to the disk."""

    def __init__(self, descriptor: int) -> None:
        self.size = 0
        self._descriptor = descriptor
        self._begun = 0  # bytes announced to the disk

    def add(self, piece: Iterable[bytes | memoryview]) -> None:
        """Append a piece; make each part of it only now, while it is in the processor's cache."""
        for part in piece:
            with _translated():
                _write(self._descriptor, part)
            self.size += len(part)
            if self.size - self._begun >= _EARLY:
                _begin_flush(self._descriptor, self._begun, self.size - self._begun)
                self._begun = self.size


def _write(descriptor: int, content: bytes | memoryview) -> None:
    written = os.write(descriptor, content)
    while written < len(content):  # a signal came, or the disk is nearly full
        written += os.write(descriptor, memoryview(content)[written:])


def _begin_flush(descriptor: int, at: int, length: int) -> None:
    """Have these bytes brought to the disk without waiting (posix_fadvise(2), where it exists)."""
    if hasattr(os, "posix_fadvise"):
        # only advice; the final flush reports faults of the disk
        with suppress(OSError):
            os.posix_fadvise(descriptor, at, length, os.POSIX_FADV_DONTNEED)


def _read(descriptor: int, at: int, length: int) -> bytes:
    content = os.pread(descriptor, length, at)
    while 0 < len(content) < length:
        more = os.pread(descriptor, length - len(content), at + len(content))
        if not more:
            break
        content += more
    return content


def _settle(draft: Path, path: Path) -> None:
    """Give a flushed draft its name, durably."""
    try:
        os.rename(draft, path)  # noqa: PTH104  # beside the other calls of this file
    except FileNotFoundError:
        try:
            # the first object of this shard; never the folder itself
            path.parent.mkdir(mode=0o700)
        except FileExistsError:
            pass
        flush_folder(path.parent.parent)
        os.rename(draft, path)  # noqa: PTH104  # as above
    flush_folder(path.parent)


def _forget(draft: Path) -> None:
    try:
        draft.unlink(missing_ok=True)
    except OSError:  # ``clear`` removes it later; the earlier fault is reported
        return


def _mark(path: Path) -> str | None:
    return path.read_text("utf-8").strip() if path.exists() else None


def _set_mark(draft: Path, path: Path, owner: str) -> None:
    draft.unlink(missing_ok=True)
    descriptor = _create(draft)
    try:
        _write(descriptor, f"{owner}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(draft, path)  # noqa: PTH104  # as above
    flush_folder(path.parent)


def _remove_mark(path: Path) -> None:
    path.unlink(missing_ok=True)
    flush_folder(path.parent)


def _listed(folder: Path, shard: str) -> list[StoredObject]:
    listing = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted while the list was made
            if OBJECT_NAME.fullmatch(shard + entry.name):
                listing.append(
                    StoredObject(
                        shard + entry.name, status.st_size, status.st_mtime_ns // 1_000_000
                    )
                )
    return listing
