"""Stand-ins of four key services, each as its own client speaks to it: real keys, real sealing, and
refusals as their makers document them.

A thread answers, for the clients block; ``fault`` makes it refuse, fall silent or fail.
"""

import base64
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import jwt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.certificates import Authority
from tests.support.issuer import rsa_key

Answer = tuple[int, dict[str, Any]]

_OAEP = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
_ARN = "arn:aws:kms:eu-north-1:111122223333:key/0d990263-018e-4e65-a703-eff731de951e"
_GOOGLE_KEY = "projects/people/locations/europe-north1/keyRings/vaults/cryptoKeys/master"
_VERSION = "78deebed173b48e48f55abf87ed4cf71"
_TOKEN = "hvs.a-token-of-the-tests"


class StandIn:
    """One service with one key, which it never hands out."""

    scheme: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fault = ""  #: what it answers instead: the name of a ``Reason``, ``silent``, ``down``
        self.failures = 0  #: so many answers are ``down``, whatever ``fault`` says
        self.asked: list[str] = []  #: method and path of each request
        self._aes = AESGCM(AESGCM.generate_key(256))
        self._servers = [self._listening(self.context())]

    def context(self) -> ssl.SSLContext | None:
        """What it speaks TLS with, if it does."""
        return None

    def _listening(self, context: ssl.SSLContext | None) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    @property
    def port(self) -> int:
        return self._servers[0].server_address[1]

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def query(self) -> str:
        """What stands behind the path of the key file."""
        raise NotImplementedError

    def address(self, path: Path | str) -> str:
        """The value of the setting ``keys``."""
        return f"{self.scheme}://{path}?{self.query}"

    def environment(self) -> dict[str, str]:
        """What the client of this service reads from the environment."""
        raise NotImplementedError

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        self.asked.append(f"{method} {path}")
        if self.failures:
            self.failures -= 1
            return 503, {}
        if self.fault == "silent":
            time.sleep(2.5)
        if self.fault == "down":
            return 503, {}
        return self._answer(method, path, headers, body)

    def _answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        raise NotImplementedError

    def _seal(self, plain: bytes, bound: str) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._aes.encrypt(nonce, plain, bound.encode())

    def _open(self, sealed: bytes, bound: str) -> bytes:
        return self._aes.decrypt(sealed[:12], sealed[12:], bound.encode())


def _handler(service: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            form = "urlencoded" in self.headers.get("Content-Type", "")
            body = None if form or not text else json.loads(text)
            status, content = service.answer(self.command, self.path, self.headers, body)
            challenge = content.pop("WWW-Authenticate", None)
            answer = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            if challenge is not None:
                self.send_header("WWW-Authenticate", challenge)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Nothing: the tests look at ``asked``."""

    for method in ("GET", "POST", "PUT"):
        setattr(Handler, f"do_{method}", Handler._respond)
    return Handler


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


class Aws(StandIn):
    """AWS KMS: Encrypt and Decrypt, signed requests (SigV4), an encryption context."""

    scheme = "aws-kms"
    faults: ClassVar = {
        "denied": "AccessDeniedException", "credentials": "UnrecognizedClientException",
        "disabled": "DisabledException", "absent": "NotFoundException",
    }  # fmt: skip

    @property
    def query(self) -> str:
        return f"key={_ARN}&endpoint=http://127.0.0.1:{self.port}&timeout=1"

    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests"}

    def _answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        if self.fault in self.faults:
            return 400, {"__type": self.faults[self.fault], "message": "AKIDTEST may not"}
        assert re.match(
            r"AWS4-HMAC-SHA256 Credential=AKIDTEST/\d{8}/eu-north-1/kms/aws4_request, ",
            headers["Authorization"],
        )
        assert (method, path, body["KeyId"]) == ("POST", "/", _ARN)
        bound = json.dumps(body["EncryptionContext"])
        if headers["X-Amz-Target"] == "TrentService.Encrypt":
            sealed = self._seal(base64.b64decode(body["Plaintext"]), bound)
            return 200, {"CiphertextBlob": b64(sealed), "KeyId": _ARN}
        assert headers["X-Amz-Target"] == "TrentService.Decrypt"
        try:
            plain = self._open(base64.b64decode(body["CiphertextBlob"]), bound)
        except InvalidTag:
            return 400, {"__type": "InvalidCiphertextException"}
        return 200, {"Plaintext": b64(plain), "KeyId": _ARN}


class Google(StandIn):
    """Cloud KMS: encrypt and decrypt over HTTP, signed by a service account."""

    scheme = "google-kms"
    faults: ClassVar = {
        "denied": (403, "PERMISSION_DENIED"), "credentials": (401, "UNAUTHENTICATED"),
        "disabled": (400, "FAILED_PRECONDITION"), "absent": (404, "NOT_FOUND"),
    }  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._account = rsa_key(which=1)
        super().__init__(folder)

    @property
    def query(self) -> str:
        return f"key={_GOOGLE_KEY}&endpoint=http://127.0.0.1:{self.port}&timeout=1"

    def environment(self) -> dict[str, str]:
        pem = self._account.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        account = {
            "type": "service_account", "project_id": "people", "private_key_id": "1",
            "private_key": pem.decode(), "client_email": "vault@people.iam.gserviceaccount.com",
            "client_id": "1", "token_uri": f"http://127.0.0.1:{self.port}/token",
        }  # fmt: skip
        file = self.folder / "account.json"
        file.write_text(json.dumps(account))
        return {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}

    def _answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        if self.fault in self.faults:
            status, name = self.faults[self.fault]
            return status, {"error": {"code": status, "message": "no", "status": name}}
        scheme, _, token = headers["Authorization"].partition(" ")
        said = jwt.decode(
            token, self._account.public_key(), ["RS256"], options={"verify_aud": False}
        )
        assert (scheme, said["iss"]) == ("Bearer", "vault@people.iam.gserviceaccount.com")
        place, _, work = path.partition("?")[0].rpartition(":")
        assert (method, place) == ("POST", f"/v1/{_GOOGLE_KEY}")
        bound = body["additionalAuthenticatedData"]
        if work == "encrypt":
            sealed = self._seal(base64.b64decode(body["plaintext"]), bound)
            return 200, {"name": f"{_GOOGLE_KEY}/cryptoKeyVersions/1", "ciphertext": b64(sealed)}
        assert work == "decrypt"
        try:
            plain = self._open(base64.b64decode(body["ciphertext"]), bound)
        except InvalidTag:
            return 400, {"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}}
        return 200, {"plaintext": b64(plain)}


class Azure(StandIn):
    """Key Vault over TLS: a challenge, a managed identity beside it, the public key, unwrapping."""

    scheme = "azure-keyvault"
    faults: ClassVar = {
        "denied": (403, "Forbidden", "ForbiddenByRbac"),
        "disabled": (403, "Forbidden", "KeyDisabled"),
        "absent": (404, "KeyNotFound", ""),
    }  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._rsa = rsa.generate_private_key(65537, 2048)  # another service has another key
        super().__init__(folder)
        self._servers.append(self._listening(None))

    def context(self) -> ssl.SSLContext:
        authority = Authority(self.folder)
        pair = authority.issue("127.0.0.1")
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(pair.certificate, pair.key)
        return made

    @property
    def key(self) -> str:
        return f"https://127.0.0.1:{self.port}/keys/master"

    @property
    def query(self) -> str:
        return f"key={self.key}&timeout=1"

    def environment(self) -> dict[str, str]:
        return {
            "REQUESTS_CA_BUNDLE": str(self.folder / "authority.pem"),
            "IDENTITY_ENDPOINT": f"http://127.0.0.1:{self._servers[1].server_address[1]}/identity",
            "IDENTITY_HEADER": "a-secret-of-the-tests",
        }

    def _answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        place = path.partition("?")[0].rstrip("/")
        if place == "/identity":
            return self._identity(headers)
        if headers["Authorization"] != "Bearer an-access-token":
            # a client wants to see that its token goes to the domain that asks for it
            realm = f"https://0.0.1:{self.port}"
            challenge = f'Bearer authorization="https://login.example.com/t", resource="{realm}"'
            return 401, {"WWW-Authenticate": challenge}
        if self.fault in self.faults:
            status, code, inner = self.faults[self.fault]
            more = {"innererror": {"code": inner}} if inner else {}
            return status, {"error": {"code": code, "message": "no", **more}}
        if (method, place) in {("GET", "/keys/master"), ("GET", f"/keys/master/{_VERSION}")}:
            return 200, {"key": self._public(), "attributes": {"enabled": True}}
        assert (method, place) == ("POST", f"/keys/master/{_VERSION}/unwrapkey")
        assert body["alg"] == "RSA-OAEP-256"
        try:
            plain = self._rsa.decrypt(_from_url(body["value"]), _OAEP)
        except ValueError:
            return 400, {"error": {"code": "BadParameter", "message": "no"}}
        return 200, {"kid": f"{self.key}/{_VERSION}", "value": _to_url(plain)}

    def _identity(self, headers: Any) -> Answer:
        if self.fault == "credentials":
            return 400, {"statusCode": 400, "message": "no identity"}
        assert headers["X-IDENTITY-HEADER"] == "a-secret-of-the-tests"
        ends = str(int(time.time()) + 3600)
        token = {"access_token": "an-access-token", "expires_on": ends, "token_type": "Bearer"}
        return 200, {**token, "resource": "https://vault.azure.net"}

    def _public(self) -> dict[str, Any]:
        numbers = self._rsa.public_key().public_numbers()
        return {
            "kid": f"{self.key}/{_VERSION}", "kty": "RSA", "key_ops": ["wrapKey", "unwrapKey"],
            "n": _to_url(numbers.n.to_bytes(256, "big")), "e": _to_url(b"\x01\x00\x01"),
        }  # fmt: skip


def _to_url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _from_url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Hashicorp(StandIn):
    """The transit engine: encrypt and decrypt, a token, versions of the key."""

    scheme = "hashicorp-vault"
    faults: ClassVar = {
        "denied": (403, "permission denied"), "credentials": (403, "invalid token"),
        "absent": (400, "encryption key not found"),
        "disabled": (400, "ciphertext or signature version is disallowed by policy (too old)"),
    }  # fmt: skip

    @property
    def query(self) -> str:
        return f"key=http://127.0.0.1:{self.port}/secure/transit/master&timeout=1"

    def environment(self) -> dict[str, str]:
        return {"VAULT_TOKEN": _TOKEN}

    def _answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        if self.fault in self.faults:
            status, text = self.faults[self.fault]
            return status, {"errors": [text]}
        if headers["X-Vault-Token"] != _TOKEN:
            return 403, {"errors": ["permission denied", "invalid token"]}
        assert method in ("POST", "PUT")
        if path == "/v1/secure/transit/encrypt/master":
            sealed = self._seal(base64.b64decode(body["plaintext"]), "")
            return 200, {"data": {"ciphertext": f"vault:v1:{b64(sealed)}", "key_version": 1}}
        assert path == "/v1/secure/transit/decrypt/master"
        prefix, version, sealed_text = body["ciphertext"].split(":")
        assert (prefix, version) == ("vault", "v1")
        try:
            plain = self._open(base64.b64decode(sealed_text), "")
        except InvalidTag:
            return 400, {"errors": ["cipher: message authentication failed"]}
        return 200, {"data": {"plaintext": b64(plain)}}


STAND_INS: dict[str, type[StandIn]] = {one.scheme: one for one in (Aws, Google, Azure, Hashicorp)}


@contextmanager
def standing_in(scheme: str, folder: Path) -> Iterator[StandIn]:
    """A stand-in of that service, which ends with the block."""
    service = STAND_INS[scheme](folder)
    try:
        yield service
    finally:
        service.close()
