from proxy.audit.sinks import Nowhere, Sink, quietly
from proxy.errors import Code, VaultError
from tests.support.audit import told, trail


async def test_nowhere_takes_everything(tmp_path):
    sink: Sink = Nowhere()
    sink.ready()
    sink.put(b"")
    sink.happened(b"")
    await sink.flushed()
    assert (sink.fault, sink.flushes) == (None, False)


async def test_what_is_told_quietly_is_written_or_waits(tmp_path):
    async with trail(tmp_path) as made:
        sink: Sink = made
        quietly(sink, b'"event":"write"')
    assert told(tmp_path) == [{"event": "write"}]

    class Down(Nowhere):
        def happened(self, *bodies: bytes) -> None:
            raise VaultError(Code.AUDIT_DOWN, "down")

    quietly(Down(), b"")
