"""Objects in a bucket of whatever speaks the S3 protocol.

Under the prefix they are laid out as in a folder: ``ab/`` with the objects whose names begin so,
and ``owner`` with the mark of the vault. An object becomes visible when the server has acknowledged
all of it. A failed upload is aborted; the invisible parts of a killed process are removed by a
lifecycle rule of the bucket. The library's blocking calls run on threads: its coroutines may abort
the interpreter at exit.
"""

import asyncio
import os
import re
import urllib.parse
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.errors import Code, VaultError
from proxy.objectstore.base import OBJECT_NAME, NoObject, ObjectStore, StoredObject
from proxy.objectstore.files import Threads

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import S3Store

#: Requests, and uploads, at the same moment; an upload holds a part that it fills and one it sends.
_AT_ONCE: Final = 32
#: Bytes of a part: the least that the protocol allows.
PART_BYTES: Final = 5 << 20
#: Bytes that come with the opening of an object, and that are read ahead in one go.
_FIRST: Final = 128 << 10
_AHEAD: Final = 2 << 20

_OWNER: Final = "owner"
_PARAMETERS: Final = {
    "endpoint": "", "region": "", "path_style": "", "ca": "", "timeout": "15",
    "access_key": "", "secret_key": "", "insecure": "false",
}  # fmt: skip
_FOLDER: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+", re.ASCII)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_REFERENCE: Final = re.compile(r"\$\{(env|file):([^{}]+)\}")
_ENDPOINT: Final = re.compile(
    r"http(?P<tls>s)?://(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?/?", re.ASCII
)
_NEAR: Final = re.compile(r"localhost|127\.[0-9.]+|\[::1\]", re.ASCII)

_KEY = "The object store refuses the credentials: look at access_key and secret_key."
_REGION = "The bucket is in another region: name that one (region=…)."
_BUSY = "The object store is overloaded or failing; the program tries again later."
_FULL = "The object store is full. The file was not stored."
#: Error code of the protocol: what to tell (docs.aws.amazon.com, AmazonS3 API, ErrorResponses).
_TEXTS: Final = {
    "NoSuchBucket": "There is no such bucket: create it, or correct its address.",
    "InvalidAccessKeyId": _KEY, "SignatureDoesNotMatch": _KEY, "InvalidToken": _KEY,
    "ExpiredToken": "The credentials have expired: renew them and restart.",
    "AccessDenied": (
        "The credentials lack a right: allow s3:GetObject, PutObject, DeleteObject, "
        "AbortMultipartUpload on the prefix, and ListBucket on the bucket."
    ),
    "RequestTimeTooSkewed": "The clocks here and at the object store differ: set the clock.",
    "PermanentRedirect": _REGION, "AuthorizationHeaderMalformed": _REGION,
    "SlowDown": _BUSY, "ServiceUnavailable": _BUSY, "InternalError": _BUSY,
    "QuotaExceeded": _FULL, "XMinioStorageFull": _FULL,
    "BadDigest": "What was sent to the object store did not arrive as it was. Send it again.",
}  # fmt: skip


class S3Address(NamedTuple):
    """Parsed address of a bucket; secrets in it are references only."""

    bucket: str
    prefix: str
    label: str  #: public form
    parameters: Mapping[str, str]  #: every one of ``_PARAMETERS``


def parse_bucket_address(text: str) -> S3Address:
    """The parts of ``s3://bucket/prefix?…``. Raises ``ValueError`` with a sentence."""
    try:
        parts = urllib.parse.urlsplit(text)
        query = urllib.parse.parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise ValueError("this is not the address of a bucket, as in s3://bucket/prefix") from None
    prefix = parts.path.strip("/")
    if parts.scheme != "s3" or parts.fragment or not _BUCKET.fullmatch(parts.netloc):
        raise ValueError("name a bucket, as in s3://bucket/prefix")
    if prefix and not all(_FOLDER.fullmatch(part) for part in prefix.split("/")):
        raise ValueError("a prefix has letters, digits, . _ - and single / between its parts")
    if dict(query).keys() - _PARAMETERS.keys():
        raise ValueError(f"the parameters are {', '.join(_PARAMETERS)}, and one is none of them")
    parameters = {**_PARAMETERS, **dict(query)}
    _check(parameters)
    return S3Address(parts.netloc, prefix, f"s3://{parts.netloc}/{prefix}".rstrip("/"), parameters)


def _check(parameters: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for a parameter that cannot be."""
    if not {parameters["path_style"], parameters["insecure"]} <= {"", "true", "false"}:
        raise ValueError("path_style and insecure are true or false")
    timeout = parameters["timeout"]
    if not re.fullmatch(r"[0-9]{1,3}", timeout) or not 1 <= int(timeout) <= 300:
        raise ValueError("timeout is a number of seconds from 1 to 300")
    if bool(parameters["access_key"]) != bool(parameters["secret_key"]):
        raise ValueError("access_key and secret_key come together, or not at all")
    if parameters["secret_key"] and not _REFERENCE.fullmatch(parameters["secret_key"]):
        raise ValueError("secret_key is a reference: ${env:NAME} or ${file:/path}")
    endpoint = _ENDPOINT.fullmatch(parameters["endpoint"] or "https://none")
    if endpoint is None:
        raise ValueError("endpoint is http:// or https:// and a host, such as https://minio:9000")
    far = endpoint["tls"] is None and not _NEAR.fullmatch(endpoint["host"])
    if far and parameters["insecure"] != "true":
        raise ValueError(
            "an endpoint beyond this machine has https://; say insecure=true where no one else "
            "can listen on the way to it"
        )


def _faults() -> tuple[type[BaseException], ...]:
    """Return the exceptions that the library raises."""
    from obstore.exceptions import BaseError

    return BaseError, OSError


def _code(error: BaseException) -> str:
    """The protocol's code of an error; empty where the server told none."""
    match = re.search(r"<Code>(\w{1,64})</Code>", str(error))
    return match.group(1) if match else ""


@contextmanager
def translated_faults() -> Iterator[None]:
    """Raise the library's faults as ``VaultError(FILES_UNAVAILABLE)``."""
    try:
        yield
    except _faults() as error:
        raise VaultError(Code.FILES_UNAVAILABLE, _text(error)) from error


def _text(error: BaseException) -> str:
    if code := _code(error):
        return _TEXTS.get(code, f"The object store refuses this ({code}): look at its log.")
    reason = str(error).lower()
    if "169.254." in reason:
        return "There are no credentials: name access_key and secret_key."
    if "certificate" in reason:
        return "The certificate of the object store is not trusted: name its ca."
    if "redirect" in reason:
        return _REGION
    return "The object store cannot be reached; the program tries again later."


class _OpenObject:
    """An object whose first bytes arrived with its size; further reads read ahead."""

    def __init__(self, threads: Threads, source: "tuple[S3Store, str]", size: int, block: bytes):
        self.size = size
        self._threads, self._source = threads, source
        self._at, self._block = 0, block

    async def read(self, at: int, length: int) -> bytes:
        length = max(0, min(length, self.size - at))
        end = self._at + len(self._block)
        if length and not self._at <= at <= at + length <= end:
            most = max(length, _AHEAD) if at <= end else length
            most = min(most, self.size - at)
            self._block = await self._threads.run(_range, *self._source, at, most)
            self._at = at
        return self._block[at - self._at : at - self._at + length] if length else b""

    def close(self) -> None:
        self._block = b""


class _Upload:
    """An object on its way: one request where it is small, parts where it is not."""

    def __init__(self, writer: "WritableFile") -> None:
        self.size = 0
        self._writer = writer

    def add(self, piece: Iterable[bytes | memoryview]) -> None:
        """Append a piece; make each part of it only now."""
        content = bytearray()
        for part in piece:
            content += part
        self.size += len(content)
        if content:
            with translated_faults():
                self._writer.write(content)

    @translated_faults()
    def finish(self) -> None:
        """Make the object visible."""
        self._writer.close()

    def abort(self) -> None:
        """Remove the uploaded parts. The bucket's rule removes the rest."""
        with suppress(*_faults()):
            self._writer.__exit__(InterruptedError, None, None)  # any type of error aborts


class BucketObjects:
    """The objects under a prefix of a bucket."""

    def __init__(self, address: S3Address) -> None:
        self._address = address
        self._bucket = connect_bucket(address)
        self._threads = Threads(_AT_ONCE)
        self._uploads = asyncio.Semaphore(_AT_ONCE)

    async def close(self) -> None:
        self._threads.close()

    async def put(self, name: str, pieces: AsyncIterable[Iterable[bytes | memoryview]]) -> int:
        from obstore import open_writer

        path = _path(name)
        async with self._uploads:
            upload = _Upload(
                open_writer(self._bucket, path, buffer_size=PART_BYTES, max_concurrency=1)
            )
            try:
                async for piece in pieces:
                    await self._threads.run(upload.add, piece)
                await self._threads.run(upload.finish)
            except BaseException:
                await self._threads.run(upload.abort)
                raise
        return upload.size

    async def open(self, name: str) -> _OpenObject:
        path = _path(name)
        content = await self._threads.run(_beginning, self._bucket, path)
        if content is None:
            raise NoObject
        return _OpenObject(self._threads, (self._bucket, path), *content)

    async def delete(self, name: str) -> None:
        await self._threads.run(_delete, self._bucket, _path(name))

    async def listed(self, shard: str) -> list[StoredObject]:
        return sorted(await self._threads.run(_listed, self._bucket, shard))

    async def clear(self, before: int) -> int:  # noqa: ARG002  # the port's; parts are the bucket's
        return 0

    async def owner(self) -> str | None:
        content = await self._threads.run(_beginning, self._bucket, _OWNER)
        return None if content is None else content[1].decode().strip()

    async def claim(self, owner: str) -> None:
        if not await self._threads.run(_create, self._bucket, _OWNER, f"{owner}\n".encode()):
            text = f"Another vault has just taken {self._address.label}: use another prefix."
            raise VaultError(Code.BAD_STORE, text)

    async def release(self) -> None:
        await self._threads.run(_delete, self._bucket, _OWNER)


async def open_bucket(location: str, _own: bool, _shared: bool) -> ObjectStore:
    """Open the existing bucket of that address; no request is sent yet. It has no lock.

    Raises ``VaultError(BAD_SETTINGS)`` for an address or a reference that cannot be used.
    """
    try:
        return BucketObjects(parse_bucket_address(f"s3://{location}"))
    except ValueError as error:
        raise VaultError(Code.BAD_SETTINGS, f"The setting files: {error}.") from None


def connect_bucket(address: S3Address) -> "S3Store":
    """The library's client. Raises ``ValueError`` for a reference that leads nowhere."""
    from obstore.store import S3Store

    parameters = address.parameters
    timeout = timedelta(seconds=int(parameters["timeout"]))
    endpoint = parameters["endpoint"].rstrip("/")
    by_path = (
        parameters["path_style"] != "false" if endpoint else parameters["path_style"] == "true"
    )
    if endpoint and not by_path:
        endpoint = endpoint.replace("://", f"://{address.bucket}.", 1)
    config: Any = {
        "checksum_algorithm": "SHA256",  # the server refuses what did not arrive as it was sent
        "disable_tagging": True,
        "disable_bulk_delete": True,
        "virtual_hosted_style_request": not by_path,
        "endpoint": endpoint,
        "region": parameters["region"],
        "access_key_id": _resolved(parameters["access_key"]),
        "secret_access_key": _resolved(parameters["secret_key"]),
    }
    client: Any = {
        "allow_http": endpoint.startswith("http://"),
        "timeout": timeout,
        "connect_timeout": min(timeout, timedelta(seconds=5)),
    }
    if parameters["ca"]:
        client["root_certificate"] = _content(Path(parameters["ca"])).encode()
    for name in [name for name, value in config.items() if value == ""]:
        del config[name]  # AWS's own variables say it, or nothing does
    return S3Store(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options=client,
        retry_config={"max_retries": 3, "retry_timeout": timeout},
    )


def _resolved(text: str) -> str:
    """Resolve a reference to a secret; return other texts unchanged."""
    reference = _REFERENCE.fullmatch(text)
    if reference is None:
        return text
    source, name = reference.groups()
    content = os.environ.get(name) if source == "env" else _content(Path(name))
    if not content:
        raise ValueError(f"${{{source}:{name}}} holds nothing: set it before the program starts")
    return content


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ValueError(f"the file {path} cannot be read ({reason})") from None


def _path(name: str) -> str:
    """Return the path of an object under the prefix."""
    if not OBJECT_NAME.fullmatch(name):
        raise ValueError("the name of an object is 48 hexadecimal digits")
    return f"{name[:2]}/{name[2:]}"


# ---------------------------------------------------------------------- in threads


@translated_faults()
def _beginning(bucket: "S3Store", path: str) -> tuple[int, bytes] | None:
    """Size and first bytes of an object; ``None`` where there is none."""
    import obstore

    try:
        result = obstore.get(bucket, path, options={"range": (0, _FIRST)})
        return result.meta["size"], bytes(result.bytes())
    except _faults() as error:
        if _code(error) == "NoSuchKey":
            return None
        if _code(error) == "InvalidRange":  # it is empty
            return 0, b""
        raise


@translated_faults()
def _range(bucket: "S3Store", path: str, at: int, length: int) -> bytes:
    import obstore

    return bytes(obstore.get_range(bucket, path, start=at, length=length))


@translated_faults()
def _delete(bucket: "S3Store", path: str) -> None:
    import obstore

    try:
        obstore.delete(bucket, path)
    except FileNotFoundError as error:
        if _code(error) != "NoSuchKey":
            raise


@translated_faults()
def _create(bucket: "S3Store", path: str, content: bytes) -> bool:
    """Write an object where there is none; whether it holds this content then."""
    import obstore
    from obstore.exceptions import AlreadyExistsError

    try:
        obstore.put(bucket, path, content, mode="create", use_multipart=False)
    except AlreadyExistsError:  # perhaps by this very call, whose answer got lost
        return bytes(obstore.get(bucket, path).bytes()) == content
    return True


@translated_faults()
def _listed(bucket: "S3Store", shard: str) -> list[StoredObject]:
    import obstore

    return [
        StoredObject(name, stored["size"], int(stored["last_modified"].timestamp() * 1000))
        for page in obstore.list(bucket, prefix=shard)
        for stored in page
        if OBJECT_NAME.fullmatch(name := stored["path"].replace("/", "", 1))
    ]
