"""Master keys sealed by a key management service: the file is useless without the service.

``aws-kms:///folder/keys.json?key=arn:aws:kms:…`` is the path of the key file, and behind ``key=``
the key of the service that seals it (envelope encryption): the service sees the master key when it
is made and when a process starts, and nothing else. The keys of the service never leave it.

The file names the key that sealed it, but only the settings name the service to ask: a writer of
the file must not direct credentials to another address.
"""

import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from proxy.crypto.secret import Secret
from proxy.errors import Code, VaultError

_Result = TypeVar("_Result")

#: Waits between attempts, in seconds, where no answer came or the service asks for patience.
_WAITS: Final = (0.5, 1.0)

_NEAR: Final = re.compile(r"http://(localhost|127\.[0-9.]+|\[::1\])(:[0-9]{1,5})?(/\S*)?")


class KmsKind(NamedTuple):
    """Static facts about a key service."""

    form: re.Pattern[str]  #: of the names of its keys
    example: str
    options: frozenset[str]  #: options of its address besides key and timeout
    rights: str  #: rights that this process needs on the key


#: Scheme of the address, which is the extra of the package as well → the service.
KINDS: Final[dict[str, KmsKind]] = {
    "aws-kms": KmsKind(
        re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:(key|alias)/[\w/-]+"),
        "arn:aws:kms:eu-north-1:111122223333:key/…",
        frozenset({"endpoint"}),
        "kms:Encrypt and kms:Decrypt",
    ),
    "google-kms": KmsKind(
        re.compile(r"projects/[^/\s]+/locations/[^/\s]+/keyRings/[\w-]+/cryptoKeys/[\w-]+"),
        "projects/…/locations/europe-north1/keyRings/…/cryptoKeys/…",
        frozenset({"endpoint"}),
        "roles/cloudkms.cryptoKeyEncrypterDecrypter",
    ),
    "azure-keyvault": KmsKind(
        re.compile(r"https://[^/\s?#@]+/keys/[0-9A-Za-z-]{1,127}"),
        "https://….vault.azure.net/keys/…",
        frozenset(),
        "the role Key Vault Crypto Service Encryption User (get, wrapKey, unwrapKey)",
    ),
    "hashicorp-vault": KmsKind(
        re.compile(r"https?://[^/\s?#@]+(/[\w.-]+)+/[\w.-]+"),
        "https://vault.example.com:8200/transit/…",
        frozenset({"token_file"}),
        "update on transit/encrypt and transit/decrypt of the key",
    ),
}


class KmsAddress(NamedTuple):
    """Address of sealed master keys, and of the key that sealed them. Nothing in it is secret."""

    scheme: str
    path: str  #: of the key file
    key: str  #: as the service names it
    timeout: float  #: seconds of one attempt
    endpoint: str  #: address in place of the service's public one; empty: the public one
    token_file: str  #: what holds the token of this process; empty: its variable

    @property
    def label(self) -> str:
        """The key, as the key file and messages name it."""
        return f"{self.scheme}:{self.key}"


def parse_kms_address(text: str) -> KmsAddress:
    """The parts of the address. Raises ``ValueError`` with a sentence that tells nothing of it."""
    scheme, _, rest = text.partition(":")
    kind = KINDS[scheme]
    path, _, query = rest.partition("?")
    bare = urllib.parse.unquote(path.lstrip("/"))
    if not path.startswith("///") or not bare or bare.endswith("/") or "#" in rest:
        raise ValueError("three slashes and the whole path of the key file follow the scheme")
    try:
        options = dict(urllib.parse.parse_qsl(query, strict_parsing=True)) if query else {}
    except ValueError:
        raise ValueError("options stand behind the path as ?key=…&timeout=5") from None
    for name in options:
        if name not in {"key", "timeout"} | kind.options:
            names = ", ".join(sorted({"key", "timeout"} | kind.options))
            raise ValueError(f"{scheme} takes no such option: there are {names}")
    key, endpoint = options.get("key", ""), options.get("endpoint", "")
    if not kind.form.fullmatch(key) or (key.startswith("http:") and not _NEAR.fullmatch(key)):
        raise ValueError(f"name the key that seals the file, whole: key={kind.example}")
    if endpoint and not (re.fullmatch(r"https://[^\s?#@]+", endpoint) or _NEAR.fullmatch(endpoint)):
        raise ValueError("endpoint is an address at https://")
    if not re.fullmatch(r"[1-9]|[1-5][0-9]|60", options.get("timeout", "5")):
        raise ValueError("timeout is a number of seconds from 1 to 60")
    token = options.get("token_file", "")
    if token and not token.startswith("/"):
        raise ValueError("token_file is the whole path of a file")
    timeout = float(options.get("timeout", "5"))
    return KmsAddress(scheme, "/" + bare, key, timeout, endpoint, token)


class Reason(StrEnum):
    """Reason for which a key service refused."""

    DENIED = "denied"
    CREDENTIALS = "credentials"
    DISABLED = "disabled"
    ABSENT = "absent"
    FOREIGN = "foreign"
    UNREACHABLE = "unreachable"  #: it may answer later
    OTHER = "other"


#: What to do, by reason; ``docs/keys.md`` says more.
ADVICE: Final[dict[Reason, str]] = {
    Reason.DENIED: "it is refused to the identity of this process: grant it {rights}",
    Reason.CREDENTIALS: (
        "the identity of this process is not accepted, or it has none: check the credentials that "
        "the client of this service reads, and the clock"
    ),
    Reason.DISABLED: (
        "the key is disabled, destroyed or about to be: enable it, or cancel that. Without it the "
        "vault cannot be read"
    ),
    Reason.ABSENT: "there is no such key: check its name, and region, project or vault in it",
    Reason.FOREIGN: (
        "what the key file holds was not sealed with it, or is damaged: restore the key file from "
        "its backup"
    ),
    Reason.UNREACHABLE: "no answer came in time: check the way to it, and its address",
    Reason.OTHER: "it refuses what was asked: see its own log",
}


class KmsRefusal(Exception):
    """Normalized fault of a key service; ``word``: the name of the fault there."""

    def __init__(self, reason: Reason, word: str) -> None:
        super().__init__(reason, word)
        self.reason, self.word = reason, word


class KmsClient(Protocol):
    """A key of a key management service. Both methods raise ``KmsRefusal``."""

    def seal(self, key: bytes) -> str:
        """The text that only this key opens."""

    def open(self, sealed: str) -> bytes:
        """Decrypt a sealed key."""


class SealedKeys(Secret):
    """Entries of a key file whose keys are sealed by a key service.

    Opened keys are cached, as the keys that they open are: an outage of the service does not stop a
    running process.
    """

    __slots__ = ("_client", "_connect", "_opened", "address")

    format = 2

    def __init__(self, address: KmsAddress, connect: Callable[[KmsAddress], KmsClient]) -> None:
        self.address = address
        self._connect = connect
        self._client: KmsClient | None = None
        self._opened: dict[str, bytes] = {}

    @property
    def head(self) -> dict[str, Any]:
        """Return the members that all keys of the file share."""
        return {"format": self.format, "sealed_by": self.address.label}

    def entry(self, key: bytes) -> dict[str, str]:
        """Return the entry of the file for a key, after the service has opened it again.

        Raises ``VaultError``: BAD_KEYS, VAULT_DOWN.
        """
        sealed = self._ask(lambda client: client.seal(key))
        if self._ask(lambda client: client.open(sealed)) != key:
            raise VaultError(
                Code.BAD_KEYS,
                f"{self.address.label} opens another key than it has sealed: nothing was changed.",
            )
        self._opened[sealed] = key
        return {"sealed": sealed}

    def key(self, entry: Mapping[str, Any]) -> bytes:
        """The key that an entry tells. Raises as ``entry``; ``KeyError`` where it tells none."""
        sealed: str = entry["sealed"]
        if sealed not in self._opened:
            self._opened[sealed] = self._ask(lambda client: client.open(sealed))
        return self._opened[sealed]

    def refuse(self, path: str, content: Mapping[str, Any]) -> None:
        """Raise ``VaultError(BAD_KEYS)`` for a file not sealed by the key of the settings."""
        if content["format"] == 1:
            raise VaultError(
                Code.BAD_KEYS,
                f"The key file {path} holds a key that nothing has sealed: `domicile keys rewrap "
                f"--from file://{urllib.parse.quote(path)}` seals it.",
            )
        if content["format"] != self.format:
            raise newer_file(path)
        if content["sealed_by"] != self.address.label:
            raise VaultError(
                Code.BAD_KEYS,
                f"The key file {path} was sealed by {content['sealed_by']}, and the setting `keys` "
                f"names {self.address.label}: name the former, or seal the file anew with "
                "`domicile keys rewrap --from` and the address before.",
            )

    def _ask(self, work: Callable[[KmsClient], _Result]) -> _Result:
        for wait in (*_WAITS, None):
            try:
                return work(self._connected())
            except KmsRefusal as refusal:
                if refusal.reason is not Reason.UNREACHABLE or wait is None:
                    raise self._fault(refusal) from None
                time.sleep(wait)
        raise AssertionError("the last attempt answers or raises")

    def _connected(self) -> KmsClient:
        if self._client is None:
            try:
                self._client = self._connect(self.address)
            except ImportError:
                scheme = self.address.scheme
                raise VaultError(
                    Code.BAD_KEYS,
                    f"The setting `keys` begins with {scheme}:, which needs more than is "
                    f"installed: run `pip install 'domicile[{scheme}]'`.",
                ) from None
        return self._client

    def _fault(self, refusal: KmsRefusal) -> VaultError:
        advice = ADVICE[refusal.reason].format(rights=KINDS[self.address.scheme].rights)
        code = Code.VAULT_DOWN if refusal.reason is Reason.UNREACHABLE else Code.BAD_KEYS
        return VaultError(
            code, f"The key {self.address.label} cannot be used ({refusal.word}): {advice}."
        )


def newer_file(path: str) -> VaultError:
    """The fault of a key file that this version cannot read."""
    return VaultError(
        Code.BAD_KEYS, f"The key file {path} was written by a newer version: run that version."
    )
