"""Errors of the token service, as RFC 6749 section 5.2 spells them."""

import re
from typing import Final

#: What an ``error_description`` may hold (RFC 6749, section 5.2).
DESCRIPTION: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]+")

#: How a client that did not prove itself may do so (RFC 7617); its own characters never come back to it.
CHALLENGE: Final = 'Basic realm="domicile", charset="UTF-8"'


class OAuthError(Exception):
    """A refusal: ``error`` is one of the registered words, ``description`` a constant sentence for the developer."""

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


def invalid_client(description: str = "The client is unknown, disabled, or its secret is wrong.") -> OAuthError:
    """Client authentication failed; the same words for every reason that tells something about a client."""
    error = OAuthError("invalid_client", description, 401)
    error.challenge = CHALLENGE
    return error


def slow_down(seconds: int, status: int = 429) -> OAuthError:
    """Too many failures, or too much at once. No registered word of the token endpoint fits better."""
    error = OAuthError("temporarily_unavailable", "Too many attempts: wait as long as Retry-After says.", status)
    error.retry_after = seconds
    return error
