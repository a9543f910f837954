"""The master key: it wraps keysets; files that leave the vault are sealed by a key of it.

Nobody else may read its file, and a crash leaves no partial one: the mode is 0600 or 0400 and the
owner is the user that runs the program. One exception is made for secrets that Kubernetes mounts:
they belong to root, and ``fsGroup`` gives them to the group of the pod. So a file of root may also
be readable by a group that this process is in. Whatever others may read, or group or others may
write, is refused.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from proxy.crypto.aead import KEY_ID_BYTES, NONCE_BYTES, gcm_open, gcm_seal
from proxy.crypto.prf import derive
from proxy.crypto.secret import Secret
from proxy.crypto.stream import StreamAead
from proxy.errors import Code, VaultError
from proxy.offload import flush_folder

_SIZE_LIMIT = 64 * 1024


def read_key_file(path: str) -> bytes:
    """The file's content.

    ``VaultError(BAD_KEYS)`` when it is missing, unreadable, or open to others.
    """
    try:
        # a pipe must not hang the start
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise VaultError(
            Code.BAD_KEYS,
            f"There is no key file at {path}: restore it from a backup, or make one with "
            "`domicile init` where there is no vault yet.",
        ) from None
    except OSError as error:
        raise VaultError(
            Code.BAD_KEYS,
            f"The key file {path} cannot be read ({os.strerror(error.errno or 0)}): check owner "
            "and mode.",
        ) from None
    try:
        _check_access(path, os.fstat(descriptor))
        return os.read(descriptor, _SIZE_LIMIT)
    finally:
        os.close(descriptor)


def write_new(path: str, content: bytes) -> None:
    """Make the file with mode 0600: whole and durable when this returns, or not there at all.

    ``VaultError(BAD_KEYS)`` when something is at the path already; ``VaultError(NOT_WRITABLE)``
    when the folder is missing, cannot be written, or its file system has no hard links (nor could
    it hold the embedded database).
    """
    folder = Path(path).parent
    try:
        # A link appears whole or not at all, and never replaces an existing file.
        if not _link_nameless(Path(path), content):
            _link_draft(Path(path), content)
        flush_folder(folder)
    except FileExistsError:
        raise key_file_exists(path) from None
    except OSError as error:
        raise VaultError(Code.NOT_WRITABLE, _advice(path, folder, error)) from None


def key_file_exists(path: str) -> VaultError:
    """The fault where a key file would have to replace another one."""
    return VaultError(
        Code.BAD_KEYS,
        f"There already is a key file at {path}; it is never overwritten. Move it away to "
        "make a new one.",
    )


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Around reading and replacing the file: no other process does the same meanwhile."""
    try:
        folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise VaultError(Code.NOT_WRITABLE, _advice(path, Path(path).parent, error)) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def replace_key_file(path: str, content: bytes) -> None:
    """Put other content into the file: whole and durable when this returns, and at every moment
    either the old or the new.

    ``VaultError(NOT_WRITABLE)`` if that is impossible; the old content then stays. A link is not
    followed: a mounted file must be changed where it comes from.
    """
    file = Path(path)
    draft = file.with_name(f".{file.name}.new")
    try:
        if file.is_symlink():
            raise VaultError(
                Code.NOT_WRITABLE,
                f"The key file {path} is a link, as secrets are mounted: change what it leads "
                "to, as docs/operations.md says.",
            )
        draft.unlink(missing_ok=True)  # leftover of an interrupted process
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as open_draft:
            _fill(open_draft, content)
        draft.replace(file)
        flush_folder(file.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise VaultError(Code.NOT_WRITABLE, _advice(path, file.parent, error)) from None


def _check_access(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise VaultError(
            Code.BAD_KEYS,
            f"The key file {path} is not a regular file: point the setting `keys` at one.",
        )
    if fault := access_fault(path, status):
        raise VaultError(Code.BAD_KEYS, f"The key file {path} {fault}.")


def access_fault(path: str, status: os.stat_result) -> str:
    """Return why a file with a private key cannot be trusted, as the end of a sentence, or ""."""
    us, mode = os.geteuid(), stat.S_IMODE(status.st_mode)
    if status.st_uid not in (us, 0):
        return f"belongs to another user: run `chown {us} {path}`, then `chmod 600 {path}`"
    shared = status.st_uid == 0 and us != 0 and status.st_gid in {os.getegid(), *os.getgroups()}
    if mode & 0o077 & ~(0o040 if shared else 0):
        return (
            f"is open to others (mode {mode:04o}): run `chmod 600 {path}`"
            " (in Kubernetes: defaultMode: 0400 on the secret's volume, and fsGroup in the pod's "
            "securityContext)"
        )
    return ""


#: Errors of systems without unnamed files, or without a ``/proc`` to link them.
_NO_NAMELESS = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})


def _link_nameless(path: Path, content: bytes) -> bool:
    """Write a file that has no name until it is whole, so that a process that is killed leaves no
    draft with a key in it.

    ``False`` where the system has no such files.
    """
    nameless: int = getattr(os, "O_TMPFILE", 0)  # Linux alone has it
    if not nameless:
        return False
    try:
        descriptor = os.open(path.parent, nameless | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in _NO_NAMELESS and path.parent.is_dir():
            return False
        raise
    with os.fdopen(descriptor, "wb") as file:
        _fill(file, content)
        try:
            os.link(
                f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True
            )
        except FileNotFoundError:
            return False
    return True


def _link_draft(path: Path, content: bytes) -> None:
    draft = path.parent / f".{path.name}.{os.urandom(8).hex()}"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            _fill(file, content)
        path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)


def _fill(file: BinaryIO, content: bytes) -> None:
    os.fchmod(file.fileno(), 0o600)
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _advice(path: str, folder: Path, error: OSError) -> str:
    reason = os.strerror(error.errno or 0)
    remedy = {
        errno.ENOENT: "make the folder first",
        errno.ENOTDIR: "name a path below a folder",
        errno.EACCES: f"give the user that runs domicile the right to write in {folder}",
        errno.EROFS: f"mount {folder} writable, or mount an existing key",
        errno.ENOSPC: "free some space on the disk",
        errno.EDQUOT: "free some space on the disk",
        errno.EFBIG: "raise the limit for the size of files (ulimit -f)",
        errno.EPERM: "use a local file system with hard links",
        errno.EOPNOTSUPP: "use a local file system with hard links",
    }
    return (
        f"The key file {path} cannot be made ({reason}): "
        f"{remedy.get(error.errno or 0, 'check the folder')}."
    )


#: Bytes of a master key: AES-256.
MASTER_BYTES = 32

_FORMAT = b"\x01"
_ID_BYTES = 8


class MasterKey(Secret):
    """A key that came from a key source.

    ``id`` is a fingerprint that tells keys apart and is not secret.

    ``others`` are older keys, or one that is about to follow: they only open. A wrapped blob is:
    format 0x01, the 8 bytes of ``id``, 12 random bytes of nonce, AES-256-GCM ciphertext and tag.
    """

    __slots__ = ("_files", "_key", "id", "others")

    def __init__(self, key: bytes, others: Sequence["MasterKey"] = ()) -> None:
        if len(key) != MASTER_BYTES:
            raise ValueError(f"a master key is {MASTER_BYTES} bytes")
        self._key = derive(key, "master", "wrap")
        self._files = derive(key, "master", "files")
        self.id = derive(key, "master", "id", length=_ID_BYTES).hex()
        self.others = {other.id: other for other in others if other.id != self.id}

    @staticmethod
    def wrapper(sealed: bytes) -> str:
        """The id of the key that a blob was wrapped with."""
        return sealed[1 : 1 + _ID_BYTES].hex()

    def files(self) -> StreamAead:
        """Cipher of files that leave the vault and come back: exports.

        Other keys than those that wrap.
        """
        keys = {
            bytes.fromhex(key.id)[:KEY_ID_BYTES]: key._files  # noqa: SLF001  # of the same class
            for key in (*self.others.values(), self)
        }
        return StreamAead(bytes.fromhex(self.id)[:KEY_ID_BYTES], keys)

    def wrap(self, plaintext: bytes, context: bytes) -> bytes:
        """The blob that only ``unwrap`` with the same key (as itself or among ``others``) and
        context opens.
        """
        head = _FORMAT + bytes.fromhex(self.id)
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + gcm_seal(self._key, nonce, plaintext, head + context)

    def unwrap(self, sealed: bytes, context: bytes) -> bytes:
        """Unwrap a keyset.

        ``VaultError(BAD_KEYS)`` tells whether the key is another one or the blob is damaged.
        """
        head, rest = sealed[: 1 + _ID_BYTES], sealed[1 + _ID_BYTES :]
        if head[:1] != _FORMAT:
            raise VaultError(
                Code.BAD_KEYS,
                "The wrapped keys are of a newer version of domicile, or damaged: run that "
                "version, or restore a backup.",
            )
        other = self.others.get(head[1:].hex())
        if other is not None:
            return other.unwrap(sealed, context)
        if head[1:].hex() != self.id:
            raise VaultError(
                Code.BAD_KEYS,
                f"The vault was made with master key {head[1:].hex()}, but the key source holds "
                f"{self.id}: point the setting `keys` at the key of this vault, or restore that "
                "key from a backup.",
            )
        try:
            return gcm_open(self._key, rest[:NONCE_BYTES], rest[NONCE_BYTES:], head + context)
        except VaultError:
            raise VaultError(
                Code.BAD_KEYS,
                "The wrapped keys of the vault are damaged: restore the vault from a backup.",
            ) from None
