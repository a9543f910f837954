"""The peer of measure 1: redaction the way an addon for mitmproxy is usually written.

Parses the body, swaps five fields for random tokens, keeps the values in a dict and writes the
document anew; the answer goes the other way. Nothing is encrypted and nothing survives the process,
which is less than what Domicile does for the same request. Runs inside mitmproxy's own environment,
so it imports nothing of ours.
"""

import json
import secrets

from mitmproxy import http  # type: ignore[import-not-found]  # lives in an environment of its own

FIELDS = ("first_name", "last_name", "email", "phone", "street")


class Redacting:
    """Tokens to the application, values to the caller."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def request(self, flow: http.HTTPFlow) -> None:
        """Swap the values of a JSON request for tokens."""
        document = _document(flow.request)
        if document is None:
            return
        for name in FIELDS:
            value = document.get(name)
            if isinstance(value, str):
                token = secrets.token_hex(16)
                self.values[token] = value
                document[name] = token
        flow.request.content = json.dumps(document).encode()

    def response(self, flow: http.HTTPFlow) -> None:
        """Put the values back into a JSON answer."""
        document = _document(flow.response)
        if document is None or flow.response is None:
            return
        for name in FIELDS:
            value = document.get(name)
            if isinstance(value, str):
                document[name] = self.values.get(value, value)
        flow.response.content = json.dumps(document).encode()


def _document(message: http.Message | None) -> dict[str, object] | None:
    if (
        message is None
        or not message.content
        or "json" not in message.headers.get("content-type", "")
    ):
        return None
    if not message.content.startswith(b"{"):
        return None
    parsed: dict[str, object] = json.loads(message.content)
    return parsed


addons = [Redacting()]
