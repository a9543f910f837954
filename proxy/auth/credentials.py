"""Client authentication at the token endpoint (RFC 6749, section 2.3.1): Basic, or form members."""

import base64
import binascii
import re
import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

# Errors of the token service, as RFC 6749 section 5.2 spells them.

#: Characters of an ``error_description`` (RFC 6749, section 5.2).
DESCRIPTION: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]+")

#: How a client that did not prove itself may do so (RFC 7617); its own characters never come back
#: to it.
CHALLENGE: Final = 'Basic realm="domicile", charset="UTF-8"'


class OAuthError(Exception):
    """A refusal: ``error`` is a registered word, ``description`` a constant text for developers."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.retry_after: int | None = None  #: seconds
        self.challenge: str | None = None  #: of ``WWW-Authenticate``


def invalid_request(description: str) -> OAuthError:
    """The request is not one: a parameter is missing, repeated or malformed."""
    return OAuthError("invalid_request", description)


def invalid_client(
    description: str = "The client is unknown, disabled, or its secret is wrong.",
) -> OAuthError:
    """Client authentication failed; the same words for every reason that tells about a client."""
    error = OAuthError("invalid_client", description, 401)
    error.challenge = CHALLENGE
    return error


def slow_down(seconds: int, status: int = 429) -> OAuthError:
    """Too many failures, or too much at once.

    No registered word of the token endpoint fits better.
    """
    error = OAuthError(
        "temporarily_unavailable", "Too many attempts: wait as long as Retry-After says.", status
    )
    error.retry_after = seconds
    return error


_PARAMETERS: Final = 32


class Credentials(NamedTuple):
    """A client id and a secret, as sent."""

    client: str
    secret: str


def read_form(body: bytes) -> dict[str, str]:
    """The parameters of a request body; those without a value count as absent (RFC 6749, section
    3.2).

    ``audience`` may be repeated (RFC 8693, section 2.1), any other may not. Raises ``OAuthError``.
    """
    try:
        pairs = urllib.parse.parse_qsl(
            body.decode("ascii"), errors="strict", max_num_fields=_PARAMETERS
        )
    except ValueError:
        raise invalid_request(
            "The body is not a form in UTF-8, or has too many parameters."
        ) from None
    form: dict[str, str] = {}
    for name, value in pairs:
        if name == "audience" and name in form:
            form[name] += " " + value
        elif name in form:
            raise invalid_request("A parameter is there more than once.")
        else:
            form[name] = value
    return form


def credentials(authorization: str | None, form: Mapping[str, str]) -> Credentials:
    """Return the client's credentials, sent in exactly one way. Raises ``OAuthError``."""
    if authorization is None:
        if "client_id" in form and "client_secret" in form:
            return Credentials(form["client_id"], form["client_secret"])
        raise invalid_client(
            "No client authentication: send client id and secret as Basic credentials or in the "
            "form."
        )
    sent = _basic(authorization)
    if "client_secret" in form or form.get("client_id", sent.client) != sent.client:
        raise invalid_request("The client proves itself in two ways at once: choose one.")
    return sent


def _basic(authorization: str) -> Credentials:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise invalid_client(
            "This endpoint takes Basic credentials, or client id and secret in the form."
        )
    try:
        client, colon, secret = (
            base64.b64decode(encoded.strip(" "), validate=True).decode().partition(":")
        )
        if colon:
            return Credentials(_unquoted(client), _unquoted(secret))
    except (ValueError, binascii.Error):
        pass
    raise invalid_client(
        "The Basic credentials cannot be read: encode client id, colon and secret in Base64."
    )


def _unquoted(text: str) -> str:
    """Both halves are form-encoded before they are joined; ids and secrets of ours need none."""
    return urllib.parse.unquote_plus(text, errors="strict")
