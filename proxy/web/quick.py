"""A request without a body that no rule names, sent on in the moment it came.

Nothing has to be awaited for it: its connection to the application waits idle, and its answer nearly always comes as a whole,
with its head. So the task of the caller's connection is not woken for it, which costs as much as all that is done here.
The task goes on with whatever is out of the ordinary: a long answer, a slow caller, a fault.
"""

from collections.abc import Callable

from proxy.redactor.message import RawHeaders
from proxy.web import writer
from proxy.web.incoming import Incoming
from proxy.web.upstream.port import Begun


class Quick(Begun):
    """An exchange without a body that was begun as soon as the caller's bytes came; ``tell`` is called at its end."""

    __slots__ = ("_tell", "fault", "incoming")

    def __init__(self, incoming: Incoming, tell: Callable[[Incoming, None], None]) -> None:
        super().__init__()
        self.incoming = incoming
        self.fault: Exception | None = None  #: a fault of ours while the answer was passed back
        self._tell = tell

    def interim(self, status: int, reason: bytes, headers: RawHeaders) -> None:
        """Pass an interim answer on."""
        writer.interim(self.incoming, status, reason, headers)

    def came(self) -> None:
        """A whole answer that the caller need not be waited for is passed back here; all else is for the caller's task."""
        incoming, reply = self.incoming, self.reply
        if reply is None or not reply.done or reply.held + incoming.unsent > writer.REST:
            incoming.connection.resume(incoming, self)
            return
        try:
            writer.whole(incoming, reply, reply.whole or b"")
            self._tell(incoming, None)
        except Exception as fault:  # noqa: BLE001  # raised again by the caller's task, which tells of it
            self.fault = fault
            incoming.connection.resume(incoming, self)
        else:
            incoming.connection.answered(incoming)

    def drop(self) -> None:
        """The caller has gone."""
        super().drop()
        self._tell(self.incoming, None)
