"""How a client proves itself at the token endpoint: in ``Authorization: Basic``, or in the form (RFC 6749, section 2.3.1)."""

import base64
import binascii
import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

from proxy.auth.errors import invalid_client, invalid_request

_PARAMETERS: Final = 32


class Credentials(NamedTuple):
    """A client id and a secret, as somebody sent them."""

    client: str
    secret: str


def read_form(body: bytes) -> dict[str, str]:
    """The parameters of a request body; those without a value count as absent (RFC 6749, section 3.2).

    ``audience`` may be repeated (RFC 8693, section 2.1), any other may not. Raises ``OAuthError``.
    """
    try:
        pairs = urllib.parse.parse_qsl(body.decode("ascii"), errors="strict", max_num_fields=_PARAMETERS)
    except ValueError:
        raise invalid_request("The body is not a form in UTF-8, or has too many parameters.") from None
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
    """What the client proves itself with, by one way alone. Raises ``OAuthError``."""
    if authorization is None:
        if "client_id" in form and "client_secret" in form:
            return Credentials(form["client_id"], form["client_secret"])
        raise invalid_client("No client authentication: send client id and secret as Basic credentials or in the form.")
    sent = _basic(authorization)
    if "client_secret" in form or form.get("client_id", sent.client) != sent.client:
        raise invalid_request("The client proves itself in two ways at once: choose one.")
    return sent


def _basic(authorization: str) -> Credentials:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise invalid_client("This endpoint takes Basic credentials, or client id and secret in the form.")
    try:
        client, colon, secret = base64.b64decode(encoded.strip(" "), validate=True).decode().partition(":")
        if colon:
            return Credentials(_plain(client), _plain(secret))
    except (ValueError, binascii.Error):
        pass
    raise invalid_client("The Basic credentials cannot be read: encode client id, colon and secret in Base64.")


def _plain(text: str) -> str:
    """Both halves are form-encoded before they are joined; ids and secrets of ours read the same either way."""
    return urllib.parse.unquote_plus(text, errors="strict")
