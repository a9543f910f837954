"""The messages of a WebSocket: values of the caller out, tokens of the application back.

Each message is a separate JSON document. Those of the caller may search by values that the rule
names; one with a field elsewhere is refused, as the body of any request is.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.offload import SMALL, run_in_thread
from proxy.redactor.events import Event
from proxy.redactor.exchange.bound_operation import count, hidden
from proxy.redactor.exchange.event_stream import StreamExchange, event_bytes
from proxy.redactor.exchange.known_tokens import SearchTokens
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.restore import rewritten
from proxy.redactor.rules import OtherKinds

_JSON: RawHeaders = ((b"Content-Type", b"application/json"),)
_SWITCHING = 101


class MessageExchange(StreamExchange):
    """The exchange of an operation with ``response: {websocket: …}``, from its handshake on."""

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """As in any exchange; no extension is requested, such as compression of messages."""
        sent = await super().redact_request(request, marks)
        dropped = b"sec-websocket-extensions"
        headers = tuple([one for one in sent.headers if one[0].lower() != dropped])
        return replace(sent, headers=headers)

    async def stream(self, status: int, headers: RawHeaders) -> "MessageExchange | None":  # noqa: ARG002  # the names of the port
        """Return the relay of messages after the handshake; ``None`` for any other answer."""
        if status != _SWITCHING:
            return None
        self._status = status
        return self

    @property
    def passes_binary(self) -> bool:
        """Whether the caller may send binary messages."""
        return self._operation.request.other_kinds is OtherKinds.PASS

    async def restore(self, piece: bytes) -> bytes:
        """A message of the application, with values. Raises ``VaultError``."""
        return event_bytes(
            await self.restored_events([Event(piece, ((0, len(piece)),) if piece else ())])
        )

    async def redact(self, text: bytes) -> bytes:
        """A message of the caller, with tokens. Raises ``VaultError``: then it must not leave."""
        long = len(text) > SMALL
        request = Request("POST", b"/", _JSON, text)
        body = await run_in_thread(long, self._joined.read, request)
        if body is None or not any(item.spots for item in body.items):
            return text
        search = self._search = SearchTokens(self._collection)
        await search.redacted(b"/", {}, body.items)
        values = await search.rows(body.items)
        view = self._joined.view
        covered = sorted({name for name, _ in search.values if view and view.covers(name)})
        if covered:
            raise hidden(self._operation, covered)
        written = await run_in_thread(long, rewritten, text, body, values)
        guard = self._joined.guard
        if guard is not None:
            await run_in_thread(long, guard.check, body.items, values, search.values, request)
        count(self._joined.protected, written.counts)
        return written.content
