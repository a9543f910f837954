"""The key services by their maintained clients: one small class each, over what its maker ships.

Each client is imported when an address names its service, and by no other file. It makes one
attempt with a time-out; retries and error texts are the same for all (``kms``). Only the names of
faults are passed on: a client's message may quote what was sent.
"""

import base64
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from proxy.crypto.kms import KmsAddress, KmsClient, KmsRefusal, Reason
from proxy.crypto.secret import secret_variable

#: What binds sealed keys to their purpose, where a service can; its log shows it.
_PURPOSE: Final = "domicile master key"

#: How AWS names faults.
_AWS: Final[dict[str, Reason]] = {
    "AccessDeniedException": Reason.DENIED,
    "UnrecognizedClientException": Reason.CREDENTIALS,
    "InvalidClientTokenId": Reason.CREDENTIALS,
    "InvalidSignatureException": Reason.CREDENTIALS,
    "ExpiredTokenException": Reason.CREDENTIALS,
    "MissingAuthenticationToken": Reason.CREDENTIALS,
    "MissingAuthenticationTokenException": Reason.CREDENTIALS,
    "DisabledException": Reason.DISABLED,
    "KMSInvalidStateException": Reason.DISABLED,
    "NotFoundException": Reason.ABSENT,
    "InvalidArnException": Reason.ABSENT,
    "InvalidCiphertextException": Reason.FOREIGN,
    "IncorrectKeyException": Reason.FOREIGN,
    "ThrottlingException": Reason.UNREACHABLE,
    "KeyUnavailableException": Reason.UNREACHABLE,
    "DependencyTimeoutException": Reason.UNREACHABLE,
    "KMSInternalException": Reason.UNREACHABLE,
}


class AwsKms:
    """AWS KMS. Credentials as its client finds them: variables, web identity, machine role."""

    def __init__(self, address: KmsAddress) -> None:
        import botocore.session
        from botocore.config import Config

        self._key = address.key
        self._client = botocore.session.Session().create_client(
            "kms",
            region_name=address.key.split(":")[3],
            endpoint_url=address.endpoint or None,
            config=Config(
                connect_timeout=address.timeout,
                read_timeout=address.timeout,
                retries={"total_max_attempts": 1},
            ),
        )

    def seal(self, key: bytes) -> str:
        with self._faults():
            answer = self._client.encrypt(Plaintext=key, **self._common())
            return base64.b64encode(answer["CiphertextBlob"]).decode()

    def open(self, sealed: str) -> bytes:
        with self._faults():
            answer = self._client.decrypt(CiphertextBlob=_binary(sealed), **self._common())
            key: bytes = answer["Plaintext"]
            return key

    def _common(self) -> dict[str, Any]:
        return {"KeyId": self._key, "EncryptionContext": {"purpose": _PURPOSE}}

    @contextmanager
    def _faults(self) -> Iterator[None]:
        from botocore import exceptions

        try:
            yield
        except exceptions.ClientError as error:
            name = str(error.response["Error"].get("Code", ""))
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            reason = Reason.UNREACHABLE if status >= 500 else Reason.OTHER
            raise KmsRefusal(_AWS.get(name, reason), name) from None
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            raise KmsRefusal(Reason.UNREACHABLE, type(error).__name__) from None
        except exceptions.BotoCoreError as error:  # no credentials, in most cases
            raise KmsRefusal(Reason.CREDENTIALS, type(error).__name__) from None


class GoogleKms:
    """Cloud KMS of Google, over HTTP. Credentials come from where its client looks."""

    def __init__(self, address: KmsAddress) -> None:
        with self._faults():
            from google.cloud.kms_v1 import KeyManagementServiceClient

            self._key, self._timeout = address.key, address.timeout
            options = {"api_endpoint": address.endpoint} if address.endpoint else None
            self._client = KeyManagementServiceClient(transport="rest", client_options=options)

    def seal(self, key: bytes) -> str:
        with self._faults():
            request = {**self._common(), "plaintext": key}
            answer = self._client.encrypt(request=request, timeout=self._timeout, retry=None)
            return base64.b64encode(answer.ciphertext).decode()

    def open(self, sealed: str) -> bytes:
        with self._faults():
            request = {**self._common(), "ciphertext": _binary(sealed)}
            answer = self._client.decrypt(request=request, timeout=self._timeout, retry=None)
            key: bytes = answer.plaintext
            return key

    def _common(self) -> dict[str, Any]:
        return {"name": self._key, "additional_authenticated_data": _PURPOSE.encode()}

    @contextmanager
    def _faults(self) -> Iterator[None]:
        from google.api_core import exceptions
        from google.auth import exceptions as identity
        from requests.exceptions import RequestException

        try:
            yield
        except exceptions.GoogleAPICallError as error:
            raise KmsRefusal(*_of_google(error)) from None
        except (identity.TransportError, RequestException) as error:
            raise KmsRefusal(Reason.UNREACHABLE, type(error).__name__) from None
        except identity.GoogleAuthError as error:
            raise KmsRefusal(Reason.CREDENTIALS, type(error).__name__) from None


#: How Google names the states of answers.
_GOOGLE: Final[dict[str, Reason]] = {
    "PERMISSION_DENIED": Reason.DENIED,
    "UNAUTHENTICATED": Reason.CREDENTIALS,
    "FAILED_PRECONDITION": Reason.DISABLED,
    "NOT_FOUND": Reason.ABSENT,
    "INVALID_ARGUMENT": Reason.FOREIGN,
    "RESOURCE_EXHAUSTED": Reason.UNREACHABLE,
}


def _of_google(error: Any) -> tuple[Reason, str]:
    """Return the reason and the state of a fault; its class is too coarse (400 is several)."""
    try:
        name = str(error.response.json()["error"]["status"])
    except (AttributeError, ValueError, KeyError, TypeError):
        name = type(error).__name__
    late = int(error.code or 500) >= 500
    return _GOOGLE.get(name, Reason.UNREACHABLE if late else Reason.OTHER), name


class AzureKeyVault:
    """Key Vault of Azure, by an RSA key (RSA-OAEP-256); its version precedes what it wrapped."""

    def __init__(self, address: KmsAddress) -> None:
        from azure.identity import DefaultAzureCredential

        self._key = address.key
        self._credential = DefaultAzureCredential()
        self._options = {
            "connection_timeout": address.timeout,
            "read_timeout": address.timeout,
            "retry_total": 0,
        }

    def seal(self, key: bytes) -> str:
        from azure.keyvault.keys.crypto import KeyWrapAlgorithm

        with self._faults():
            answer = self._of("").wrap_key(KeyWrapAlgorithm.rsa_oaep_256, key)
        version = str(answer.key_id).removeprefix(self._key).strip("/")
        if not re.fullmatch(r"[0-9a-fA-F]{1,64}", version):
            raise KmsRefusal(Reason.DENIED, "the version of the key cannot be read")
        return f"{version}:{base64.b64encode(answer.encrypted_key).decode()}"

    def open(self, sealed: str) -> bytes:
        from azure.keyvault.keys.crypto import KeyWrapAlgorithm

        version, _, wrapped = sealed.partition(":")
        if not re.fullmatch(r"[0-9a-fA-F]{1,64}", version):
            raise ValueError("not what this service has sealed")
        with self._faults():
            answer = self._of(version).unwrap_key(KeyWrapAlgorithm.rsa_oaep_256, _binary(wrapped))
            key: bytes = answer.key
            return key

    def _of(self, version: str) -> Any:
        from azure.keyvault.keys.crypto import CryptographyClient

        key = f"{self._key}/{version}" if version else self._key
        return CryptographyClient(key, self._credential, **self._options)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        from azure.core import exceptions

        try:
            yield
        except exceptions.HttpResponseError as error:
            raise KmsRefusal(*_of_azure(error)) from None
        except (exceptions.ServiceRequestError, exceptions.ServiceResponseError) as error:
            raise KmsRefusal(Reason.UNREACHABLE, type(error).__name__) from None


#: How Azure names faults, the inner one first.
_AZURE: Final[dict[str, Reason]] = {
    "KeyDisabled": Reason.DISABLED,
    "ObjectIsDeletedButRecoverable": Reason.DISABLED,
    "Forbidden": Reason.DENIED,
    "Unauthorized": Reason.CREDENTIALS,
    "KeyNotFound": Reason.ABSENT,
    "VaultNotFound": Reason.ABSENT,
    "BadParameter": Reason.FOREIGN,
    "Throttled": Reason.UNREACHABLE,
}


def _of_azure(error: Any) -> tuple[Reason, str]:
    status, outer = error.status_code, getattr(error, "error", None)
    inner = getattr(outer, "innererror", None) or {}
    for name in (inner.get("code"), getattr(outer, "code", None)):
        if name in _AZURE:
            return _AZURE[name], str(name)
    name = getattr(outer, "code", None) or type(error).__name__
    if status is None:  # no request was made: no identity
        return Reason.CREDENTIALS, name
    if status in (401, 403, 404):
        return {401: Reason.CREDENTIALS, 403: Reason.DENIED, 404: Reason.ABSENT}[status], name
    return (Reason.UNREACHABLE if status >= 500 or status == 429 else Reason.OTHER), name


class HashicorpVault:
    """The transit engine of HashiCorp Vault, and of OpenBao, which speaks the same.

    Its token comes from a file, as an agent writes and renews it, or from ``VAULT_TOKEN``;
    ``VAULT_NAMESPACE`` and ``VAULT_CACERT`` count as everywhere.
    """

    def __init__(self, address: KmsAddress) -> None:
        import hvac

        origin, self._mount, self._name = _transit(address.key)
        self._token_file = address.token_file
        self._client = hvac.Client(
            url=origin,
            timeout=address.timeout,
            namespace=os.environ.get("VAULT_NAMESPACE"),
            allow_redirects=False,
        )

    def seal(self, key: bytes) -> str:
        text = base64.b64encode(key).decode()
        with self._faults():
            answer = self._engine().encrypt_data(self._name, text, mount_point=self._mount)
            sealed: str = answer["data"]["ciphertext"]
            return sealed

    def open(self, sealed: str) -> bytes:
        with self._faults():
            answer = self._engine().decrypt_data(self._name, sealed, mount_point=self._mount)
            return _binary(answer["data"]["plaintext"])

    def _engine(self) -> Any:
        """The engine, asked with the token as it is now."""
        token = secret_variable("VAULT_TOKEN")
        if self._token_file:
            try:
                token = Path(self._token_file).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise KmsRefusal(
                    Reason.CREDENTIALS, f"token_file: {type(error).__name__}"
                ) from None
        if not token:
            raise KmsRefusal(Reason.CREDENTIALS, "no token")
        self._client.token = token
        return self._client.secrets.transit

    @contextmanager
    def _faults(self) -> Iterator[None]:
        from hvac import exceptions
        from requests.exceptions import RequestException

        try:
            yield
        except exceptions.VaultError as error:
            raise KmsRefusal(_of_hashicorp(error), type(error).__name__) from None
        except RequestException as error:
            raise KmsRefusal(Reason.UNREACHABLE, type(error).__name__) from None


def _of_hashicorp(error: Any) -> Reason:
    """Return the reason of a fault; a bad request is described in words alone."""
    from hvac import exceptions

    said = " ".join(map(str, error.errors or ())).lower()
    if isinstance(error, exceptions.InvalidRequest):
        if "not found" in said:
            return Reason.ABSENT
        return Reason.DISABLED if "disallowed by policy" in said else Reason.FOREIGN
    if isinstance(error, exceptions.Forbidden | exceptions.Unauthorized):
        return Reason.CREDENTIALS if "invalid token" in said else Reason.DENIED
    if isinstance(error, exceptions.InvalidPath):
        return Reason.ABSENT
    waits = exceptions.RateLimitExceeded | exceptions.InternalServerError
    down = exceptions.VaultDown | exceptions.VaultNotInitialized | exceptions.BadGateway
    return Reason.UNREACHABLE if isinstance(error, waits | down) else Reason.OTHER


def _transit(key: str) -> tuple[str, str, str]:
    """Address, mount and name of a key."""
    origin, _, name = key.rpartition("/")
    scheme, _, rest = origin.partition("://")
    host, _, mount = rest.partition("/")
    return f"{scheme}://{host}", mount, name


def _binary(text: str) -> bytes:
    """The bytes of a base64 text; ``ValueError`` when it is none."""
    return base64.b64decode(text, validate=True)


#: Scheme of the address → what asks the service.
CLIENTS: Final[dict[str, Callable[[KmsAddress], KmsClient]]] = {
    "aws-kms": AwsKms,
    "google-kms": GoogleKms,
    "azure-keyvault": AzureKeyVault,
    "hashicorp-vault": HashicorpVault,
}
