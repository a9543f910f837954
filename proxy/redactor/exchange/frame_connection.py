"""Framing of the messages between a front and the owner of its vault (``owner_protocol``): what one
side says within a turn of its loop travels as one frame, a length of four bytes and a list of
messages in MessagePack.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import msgspec

from proxy.redactor.exchange.owner_protocol import ROOM, Answer, Question
from proxy.telemetry import logs

_log = logs.logger("web")

#: Bytes of messages that travel together; a longer one travels alone.
_TOGETHER: Final = 2**20
#: Seconds between two looks whether the other side still speaks, and looks without a word that are
#: enough.
LOOK: Final = 2.0
_SILENT: Final = 10
_encode_into: Final = msgspec.msgpack.Encoder().encode_into
#: The head of a list in MessagePack, of any length: the length of it follows in four bytes.
_LIST, _LIST_HEAD = b"\xdd", 5


class FrameConnection(asyncio.Protocol):
    """One side of a connection. ``receive`` gets each frame, ``lost`` is called once at the end.

    ``admit``: of the owner's side, whether the other side may be there, and still may; it has to go
    on speaking, and to read: while it does not take its answers, nothing more is read from it.
    ``longest``: bytes of the longest frame that may come.
    """

    def __init__(
        self,
        receive: Callable[[bytes], None],
        lost: Callable[[], None],
        admit: Callable[[asyncio.BaseTransport], bool] | None = None,
        longest: int = ROOM,
    ) -> None:
        self._admit = admit
        self.longest = longest
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.closing = False  #: whether this side ends it
        self._came = bytearray()
        self._batch = bytearray()  #: messages that are about to be sent
        self._batched = 0  #: how many these are
        self._due = False  #: whether it is about to be sent
        self._heard = True  #: whether anything came since the last look
        self._unsent = 0  #: bytes that were not sent yet at the last look

    @property
    def open(self) -> bool:
        """Whether the other side is there."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._admit is None or self._admit(transport):
            self._transport = cast("asyncio.Transport", transport)
            if self._admit is not None:
                self._end_if_silent()
        else:  # soon, for uvloop leaves a socket open that is aborted here
            self._loop.call_soon(cast("asyncio.Transport", transport).abort)

    def send(self, message: Question | Answer, most: int | None = None) -> bool:
        """Say something, with whatever else is said in this turn; nothing once it is over.

        ``False``: it has more than ``most`` bytes, and is not said.
        """
        batch, before = self._batch, len(self._batch)
        try:
            _encode_into(message, batch, -1)
        except BaseException:
            del batch[before:]  # the messages before it are whole
            raise
        if most is not None and len(batch) - before > most:
            del batch[before:]
            return False
        if before and len(batch) > _TOGETHER:
            alone = batch[before:]
            del batch[before:]
            self._flush()
            self._batch = alone
        if not self._due:
            self._due = True
            self._loop.call_soon(self._flush)
        self._batched += 1
        return True

    def _flush(self) -> None:
        self._due = False
        batch, count, transport = self._batch, self._batched, self._transport
        if not count:
            return
        self._batch, self._batched = bytearray(), 0
        if transport is not None and not transport.is_closing():
            length = (len(batch) + _LIST_HEAD).to_bytes(4)
            try:
                transport.write(b"".join((length, _LIST, count.to_bytes(4), batch)))
            except RuntimeError:  # uvloop has closed what is not said to be closing: nobody hears
                _log.debug("a connection to the vault had ended before a message was written")

    def data_received(self, data: bytes) -> None:
        if not self.open:
            return
        came, self._heard = self._came, True
        if not came and len(data) == int.from_bytes(data[:4]) + 4 <= self.longest:
            self._take(data[4:])  # one frame, as nearly always
        else:
            came += data
            self._cut(came)
        if not self._due:  # behind the audit log's turn: its lines and their answers leave at once
            self._due = True
            self._loop.call_soon(self._flush)

    def _cut(self, came: bytearray) -> None:
        """Take the frames that are whole, in their order."""
        at, whole = 0, len(came)
        while whole - at >= 4:
            size = int.from_bytes(came[at : at + 4])
            if size > self.longest:
                _log.warning("a connection to the vault was ended: a frame over it is too long")
                self.close()
                return
            end = at + 4 + size
            if end > whole:
                break
            if not self._take(bytes(came[at + 4 : end])):
                return
            at = end
        del came[:at]

    def _take(self, frame: bytes) -> bool:
        """Hand a frame on; ``False``: it makes no sense, and the connection ends."""
        try:
            self._receive(frame)
        except msgspec.MsgspecError:  # another program, or another version of this one
            self.close()
            return False
        return True

    def spoke(self) -> bool:
        """Whether anything came since this was called last."""
        spoke, self._heard = self._heard, False
        return spoke

    def pause_writing(self) -> None:
        """Read nothing from one that does not take its answers: they would fill the memory."""
        if self._admit is not None and self._transport is not None and self.open:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._admit is not None and self._transport is not None and self.open:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # of the port
        self._transport = None
        self._lost()

    def _end_if_silent(self, silent: int = 0) -> None:
        """End it when nothing comes or goes any more, for the other side hangs or is cut off:
        nothing may stay locked for it. It speaks every two seconds; on a busy machine less often.
        """
        if self._transport is None or not self.open:
            return
        if self._admit is not None and not self._admit(self._transport):
            self.abort()
            return
        unsent = self._transport.get_write_buffer_size()
        alive = self.spoke() or unsent < self._unsent
        silent, self._unsent = 0 if alive else silent + 1, unsent
        if silent < _SILENT:
            self._loop.call_later(LOOK, self._end_if_silent, silent)
            return
        _log.warning("a front says nothing any more: its connection to the vault was ended")
        self.abort()

    def close(self) -> None:
        """End it, once what was said is written."""
        self.closing = True
        if self._transport is not None:
            if self._batch:
                self._flush()
            self._transport.close()

    def abort(self) -> None:
        """End it at once: nobody answers any more."""
        self.closing = True
        if self._transport is not None:
            self._transport.abort()
