"""Client of commands for the interface of a running instance, with an access token.

Which instance and which client stand on the command line and in the environment: ``--url``,
``DOMICILE_CLIENT_ID``, ``DOMICILE_CLIENT_SECRET``. A secret never comes from the command line,
where every user of the machine can read it.
"""

import asyncio
import base64
import contextlib
import os
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from proxy.cli.command import Arguments
from proxy.cli.health import reachable
from proxy.cli.http_client import HttpAnswer, HttpClient
from proxy.config import Settings, load_settings
from proxy.errors import Code, Detail, VaultError, coded
from proxy.model.record import DEFAULT

CLIENT_ID: Final = "DOMICILE_CLIENT_ID"
CLIENT_SECRET: Final = "DOMICILE_CLIENT_SECRET"

#: What to do where a command finds an instance on the vault that it was to work on.
_NAMED: Final = (
    "name it with --url (where listen.vault is, such as http://127.0.0.1:8081), and its client "
    f"with {CLIENT_ID} and {CLIENT_SECRET}; or set listen.socket and restart it."
)

_CHECK: Final = f"check {CLIENT_ID} and {CLIENT_SECRET}"

#: Seconds that an answer may take; a batch on a busy instance needs some.
_ANSWER: Final = 120.0

#: Seconds after which requests are no longer repeated, for a busy instance or a missing answer.
_PATIENCE: Final = 8.0
_LATER: Final = frozenset((429, 503))

_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class RemoteAnswer(NamedTuple):
    """An answer: its status and its JSON (``None`` where it has no body)."""

    status: int
    content: Any


class Remote:
    """An instance as one client sees it in one environment (``None``: its own).

    Not for several threads.
    """

    def __init__(
        self,
        url: str,
        client: str,
        secret: str,
        environment: str | None = "default",
        http: HttpClient | None = None,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        self._http = HttpClient(url, _ANSWER) if http is None else http
        self._socket = self._http.socket
        self.url = url if self._socket else f"{parts.scheme}://{parts.netloc}"
        self._client, self._secret, self._environment = client, secret, environment
        self._token: str | None = None

    def ask(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> RemoteAnswer:
        """The answer of an operation that may be asked again where no answer came: reads, and
        writes with an ``Idempotency-Key``.

        Raises ``VaultError``: UNAUTHORIZED for credentials that count for nothing, VAULT_DOWN when
        no answer comes, APPROVAL_NEEDED where a second person has to approve the request.
        """
        body = b"" if content is None else _encode(content)
        fields = {"Content-Type": "application/json"} if body else {}
        answer = self._authorized(method, path, body, {**fields, **(headers or {})})
        if answer.status == 401 and self._token is not None and _code(answer) == Code.UNAUTHORIZED:
            self._token = None  # it has expired
            answer = self._authorized(method, path, body, {**fields, **(headers or {})})
        if answer.status == 202 and (ident := answer.content.get("approval_id")):
            raise VaultError(
                Code.APPROVAL_NEEDED,
                f"A second person has to approve this until {answer.content['ends_at']}: with "
                f"`domicile approval approve {ident}` as another client. Then do it again.",
            )
        return answer

    def content(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The content of an answer of success.

        Raises ``VaultError`` as ``ask``, and the refusal.
        """
        return self.successful(method, path, content, headers).content

    def successful(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> RemoteAnswer:
        """The same with its status."""
        answer = self.ask(method, path, content, headers)
        if answer.status >= 300:
            raise refusal_of(answer)
        return answer

    def pages(
        self, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """The content of each page of a listing, or of the answer to a question (``content``)."""
        method, sign = "GET" if content is None else "POST", "&" if "?" in path else "?"
        following: str | None = ""
        while following is not None:
            page = self.content(method, f"{path}{following}", content, headers)
            yield page
            cursor = page["meta"].get("next")
            quoted = urllib.parse.quote(cursor or "", safe="")
            following = None if cursor is None else f"{sign}next={quoted}"

    def listed(self, path: str) -> list[Any]:
        """All items of a listing that is paged by offset."""
        items: list[Any] = []
        while True:
            page = self.content("GET", f"{path}?offset={len(items)}")
            items += page["data"]
            if not page["data"] or len(items) >= page["meta"]["total"]:
                return items

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._http.close()

    def _authorized(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> RemoteAnswer:
        if not self._socket and self._token is None:
            self._token = self.new_token()
        proof = f"Local {self._environment or DEFAULT}" if self._socket else f"Bearer {self._token}"
        return self._with_retries(method, path, body, {**headers, "Authorization": proof})

    def new_token(self) -> str:
        """A new access token. Raises ``VaultError(UNAUTHORIZED)``."""
        if self._socket:
            text = "A token is for a client: name the vault listener with --url."
            raise VaultError(Code.BAD_SETTINGS, text)
        basic = base64.b64encode(
            f"{urllib.parse.quote(self._client)}:{urllib.parse.quote(self._secret)}".encode()
        )
        form = {
            "grant_type": "client_credentials",
            "audience": self.url,
            **({} if self._environment is None else {"scope": self._environment}),
        }
        fields = {
            "Authorization": f"Basic {basic.decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        answer = self._with_retries(
            "POST", "/oauth2/token", urllib.parse.urlencode(form).encode(), fields
        )
        if answer.status != 200:
            reason = answer.content.get("error", "") if isinstance(answer.content, dict) else ""
            what = (
                "name the environment of this client with --environment"
                if reason == "invalid_scope"
                else _CHECK
            )
            raise VaultError(
                Code.UNAUTHORIZED,
                f"{self.url} gives this client no access token ({answer.status} {reason}): {what}.",
            )
        token: str = answer.content["access_token"]
        return token

    def _with_retries(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> RemoteAnswer:
        answer = self._http.send_with_retries((method, path, body, headers), _LATER, _PATIENCE)
        if answer is None:
            raise VaultError(
                Code.VAULT_DOWN, f"{self.url} gives no answer: is the service running, and there?"
            )
        try:
            return RemoteAnswer(answer.status, _decode(answer.body) if answer.body else None)
        except msgspec.MsgspecError:
            raise VaultError(
                Code.BAD_SETTINGS, f"{self.url} is no vault listener of domicile."
            ) from None


class _StoppedVault(HttpClient):
    """The interface of a vault that no instance runs on, in this process."""

    def __init__(self, settings: Settings) -> None:
        from proxy.bootstrap.offline_interface import offline_interface

        self._runner, self._stack = asyncio.Runner(), contextlib.AsyncExitStack()
        opening = self._stack.enter_async_context(offline_interface(settings))
        try:
            with stopped_first():
                self._interface = self._runner.run(opening)
        except BaseException:
            self._runner.close()
            raise
        super().__init__("unix:", _ANSWER, self._interface.connect)

    def send_with_retries(
        self, request: tuple[str, str, bytes, Mapping[str, str]], *_: Any
    ) -> HttpAnswer | None:
        """Send it once: nobody else is there, and nothing is repeated."""
        method, target, body, headers = request
        fields = {name: text for name, text in headers.items() if name != "Idempotency-Key"}
        send = partial(self.send_once, method, target, body, fields)
        trial = "true" in urllib.parse.parse_qs(target.partition("?")[2]).get("dry_run", ())
        changes = method != "GET" and not trial
        return self._runner.run(self._interface.answer(send, changes=changes))

    def close(self) -> None:
        """Close the vault as well. Once."""
        super().close()
        with self._runner:
            self._runner.run(self._stack.aclose())


@contextlib.contextmanager
def stopped_first() -> Iterator[None]:
    """Around work on a stopped vault: if an instance runs on it (STORE_BUSY), say what to do."""
    try:
        yield
    except coded(Code.STORE_BUSY):
        raise VaultError(Code.STORE_BUSY, f"An instance runs on this vault: {_NAMED}") from None


def use_socket(arguments: Arguments) -> None:
    """Name the local socket of the settings, where a process listens there and the command line and
    the environment name neither another instance nor a client.
    """
    if arguments.url is not None or os.environ.get(CLIENT_ID):
        return
    try:
        path = load_settings(arguments.config, os.environ).listen.socket
    except VaultError:
        return  # told by the command itself
    if path is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:  # nothing listens: the vault is stopped
            return
    arguments.url = f"unix:{path}"


def _code(answer: RemoteAnswer) -> str:
    return str(answer.content.get("code", "")) if isinstance(answer.content, dict) else ""


def refusal_of(answer: RemoteAnswer) -> VaultError:
    """Return the error that an unsuccessful answer describes."""
    content = answer.content if isinstance(answer.content, dict) else {}
    try:
        code = Code(content.get("code", ""))
    except ValueError:
        code = Code.INTERNAL
    faults = tuple(
        Detail(str(one.get("source", "")), str(one.get("detail", "")))
        for one in content.get("errors", ())
    )
    return VaultError(
        code, str(content.get("detail", f"The answer has status {answer.status}.")), faults
    )


def below(path: str, name: str) -> str:
    """The path of an item by its name; an escaped slash leads to no other operation."""
    return f"{path}/{urllib.parse.quote(name, safe='')}"


def ask_once(instance: Remote, method: str, path: str, content: Any = None) -> Any:
    """The content of one answer; the instance is closed. A change is made once, sent as it may."""
    headers = {} if method == "GET" else {"Idempotency-Key": os.urandom(16).hex()}
    with contextlib.closing(instance):
        return instance.content(method, path, content, headers)


def remote(arguments: Arguments) -> Remote:
    """The instance, the client and the environment of a command line; see ``administered``."""
    return _remote(arguments, arguments.environment)


def administered(arguments: Arguments) -> Remote:
    """The instance and the client of a command line, in the environment that the client has; where
    it names none, the stopped vault of the settings, if the command works on one.

    Raises ``VaultError(BAD_SETTINGS)`` when the credentials are missing.
    """
    return _remote(arguments, None)


def _remote(arguments: Arguments, environment: str | None) -> Remote:
    if arguments.url is None and arguments.stopped:
        vault = _StoppedVault(load_settings(arguments.config, os.environ))
        return Remote("unix:", "", "", environment, vault)
    client, secret = os.environ.get(CLIENT_ID, ""), os.environ.get(CLIENT_SECRET, "")
    if (arguments.url or "").startswith("unix:"):
        return Remote(arguments.url, "", "", environment)
    if not client or not secret:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"Credentials are missing: set {CLIENT_ID} and {CLIENT_SECRET} in the environment, as "
            "`domicile init` or `domicile client create` told them.",
        )
    return Remote(
        arguments.url or _own(load_settings(arguments.config, os.environ)),
        client,
        secret,
        environment,
    )


def _own(settings: Settings) -> str:
    """The vault listener of the settings, from this machine; over TLS by its certificate's name."""
    listener = str(reachable(settings.listen.vault))
    if not settings.listen.tls.secures("vault"):
        return f"http://{listener}"
    from proxy.bootstrap.network import address_of

    return address_of(settings, listener)
