"""Files in a bucket as ``pathlib`` has them in a folder, as far as backups need them. Each call
waits for the server, so they are for commands and not for the event loop.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO, Final, cast

from proxy.objectstore.s3 import S3Address, connect_bucket, parse_bucket_address, translated_faults

#: Bytes of a written part of an object, of which there are at most 10,000, and of a read.
_PART_BYTES: Final = 16 << 20
_READ_BYTES: Final = 4 << 20


class BucketPath:
    """A prefix of a bucket, or a file under it."""

    def __init__(self, address: S3Address, name: str = "") -> None:
        self.name = name
        self._address = address
        self._bucket = connect_bucket(address)

    def __str__(self) -> str:
        return f"{self._address.label}/{self.name}".rstrip("/")

    def __truediv__(self, name: str) -> "BucketPath":
        return BucketPath(self._address, name)

    def is_dir(self) -> bool:
        """Whether it is a prefix, which need not be made."""
        return not self.name

    def iterdir(self) -> Iterator["BucketPath"]:
        """The files right under the prefix."""
        import obstore

        with translated_faults():
            for stored in obstore.list_with_delimiter(self._bucket)["objects"]:
                yield self / stored["path"]

    def exists(self) -> bool:
        """Whether there is a file of this name."""
        return any(path.name == self.name for path in BucketPath(self._address).iterdir())

    def unlink(self) -> None:
        """Remove the file. Gone already: no effect."""
        import obstore

        with translated_faults():
            obstore.delete(self._bucket, self.name)

    def open(self, _mode: str = "rb") -> BinaryIO:
        """The file, to be read from its beginning to its end."""
        return cast(BinaryIO, io.BufferedReader(_Reading(self._bucket, self.name), _READ_BYTES))

    @contextmanager
    def create(self) -> Iterator[BinaryIO]:
        """A new file, which is there when the block has ended, and else is not."""
        from obstore import open_writer

        with (
            translated_faults(),
            open_writer(
                self._bucket, self.name, buffer_size=_PART_BYTES, max_concurrency=2
            ) as file,
        ):
            yield cast(BinaryIO, file)


class _Reading(io.RawIOBase):
    """A file of a bucket, piece by piece."""

    def __init__(self, bucket: Any, name: str) -> None:
        from obstore import open_reader

        with translated_faults():
            self._file: IO[bytes] = cast(
                IO[bytes], open_reader(bucket, name, buffer_size=_READ_BYTES)
            )

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with translated_faults():
            content = memoryview(self._file.read(len(buffer)))
        buffer[: len(content)] = content
        return len(content)


def parse_bucket_path(text: str, *, file: bool) -> BucketPath:
    """``s3://bucket/prefix?…``, whose last part names a file if one is meant.

    Raises ``ValueError`` with a sentence.
    """
    address = parse_bucket_address(text)
    if not file:
        return BucketPath(address)
    prefix, _, name = address.prefix.rpartition("/")
    if not re.fullmatch(r"[^/]+", name):
        raise ValueError("name a file, as in s3://bucket/prefix/domicile-….backup")
    label = address.label.rpartition("/")[0]
    return BucketPath(address._replace(prefix=prefix, label=label), name)
