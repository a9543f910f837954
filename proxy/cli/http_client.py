"""HTTP client of commands, for servers that may be busy or away for a moment."""

import http.client
import os
import socket
import ssl
import stat
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from proxy.errors import Code, VaultError

#: Seconds between attempts; the last one repeats.
_WAITS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

#: Seconds to the next attempt that an answer may ask for at most.
_LONGEST_WAIT: Final = 30.0


#: Opens a connection.
_Connect = Callable[[], socket.socket]


class HttpAnswer(NamedTuple):
    """An answer: status, header fields by their names in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def tag(self) -> str:
        """The strong entity tag, which a condition may name; empty without one."""
        tag = self.headers.get("etag", "")
        return "" if tag.startswith("W/") else tag


class HttpClient:
    """Connections to one server, one per thread, opened again after a break."""

    def __init__(self, url: str, timeout: float, connect: _Connect | None = None) -> None:
        """``url``: http, https, or ``unix:`` and a path. ``timeout``: seconds for an answer.
        ``connect``: opens connections otherwise.
        """
        parts = urllib.parse.urlsplit(url)
        self.socket = parts.scheme == "unix"
        if self.socket and connect is None:
            connect = partial(_connected, parts.path, timeout)
        self._url, self._parts, self._timeout, self._open = url, parts, timeout, connect
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        self._stopped = False

    def send_once(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpAnswer | None:
        """Send the request once; ``None`` if no answer came, so that the outcome is unknown.

        Raises ``VaultError(BAD_SETTINGS)`` for a certificate that is not trusted.
        """
        connection = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._local.connection = self._connect()
                self._connections.append(connection)
            connection.request(method, target, body or None, dict(headers))
            answer = connection.getresponse()
            content = answer.read()
        except ssl.SSLCertVerificationError as error:
            raise VaultError(
                Code.BAD_SETTINGS,
                f"{self._url} shows a certificate that is not trusted ({error.verify_message}): "
                "name its authority in SSL_CERT_FILE.",
            ) from None
        except (OSError, http.client.HTTPException):
            if connection is not None:
                connection.close()  # the next request opens it again
            return None
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return HttpAnswer(answer.status, fields, content)

    def send_with_retries(
        self,
        request: tuple[str, str, bytes, Mapping[str, str]],
        later: Collection[int],
        retry_seconds: float,
        on_wait: Callable[[HttpAnswer | None], None] = lambda _: None,
    ) -> HttpAnswer | None:
        """Return the answer to a repeatable request: the last one after all attempts.

        ``request``: as ``send_once`` takes it. ``later``: statuses to retry. ``on_wait`` is called
        with what came before each further attempt.
        """
        since, attempt = time.monotonic(), 0
        while True:
            answer = self.send_once(*request)
            usable = answer is not None and answer.status not in later
            if usable or self._stopped or time.monotonic() - since > retry_seconds:
                return answer
            on_wait(answer)
            pause(answer, attempt)
            attempt += 1

    def stop(self) -> None:
        """Let no thread wait for an answer any longer than its present attempt."""
        self._stopped = True

    def close(self) -> None:
        """Close all connections. Idempotent."""
        while self._connections:
            self._connections.pop().close()
        self._local = threading.local()

    def _connect(self) -> http.client.HTTPConnection:
        if self._open is not None:
            return _SocketConnection(self._open, self._timeout)
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)


class _SocketConnection(http.client.HTTPConnection):
    """A connection in place of one to host and port."""

    def __init__(self, connect: _Connect, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._open = connect

    def connect(self) -> None:
        self.sock = self._open()
        self.sock.settimeout(self.timeout)


def _connected(path: str, timeout: float) -> socket.socket:
    """A connection to a Unix socket."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(path)
        _refuse_stranger(connection, Path(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_stranger(connected: socket.socket, path: Path) -> None:
    """Raise ``VaultError`` if another user listens at a socket in a shared folder.

    An impostor would read the requests, and answer them.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return
    size = 3 * struct.calcsize("i")
    _, user, _ = struct.unpack(
        "3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and user not in (0, os.geteuid(), folder.st_uid):
        raise VaultError(
            Code.BAD_SETTINGS,
            f"Another user of this machine listens at {path}, in a folder where everybody may make "
            "files: name one of the user of the service with listen.socket.",
        )


def pause(answer: HttpAnswer | None, attempt: int) -> None:
    """Wait before the next attempt: as long as the answer asks for, up to half a minute."""
    time.sleep(seconds_to_wait(answer, attempt))


def seconds_to_wait(answer: HttpAnswer | None, attempt: int) -> float:
    """Seconds to the next attempt."""
    asked_for = "" if answer is None else answer.headers.get("retry-after", "")
    if asked_for.isdigit():
        return min(_LONGEST_WAIT, float(asked_for))
    return _WAITS[min(attempt, len(_WAITS) - 1)]
