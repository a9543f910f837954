from proxy.audit.services import NullSink, Sink
from proxy.errors import Code, VaultError
from tests.support.audit import audit_services, told, trail


async def test_null_sink_takes_everything(tmp_path):
    sink: Sink = NullSink()
    sink.ready()
    sink.put(b"")
    sink.put_or_queue(b"")
    await sink.flushed()
    assert (sink.fault, sink.flushes) == (None, False)


async def test_what_is_told_quietly_is_written_or_waits(tmp_path):
    async with trail(tmp_path) as made:
        audit_services(made).put_quietly(b'"event":"write"')
    assert told(tmp_path) == [{"event": "write"}]

    class Down(NullSink):
        def put_or_queue(self, *bodies: bytes) -> None:
            raise VaultError(Code.AUDIT_DOWN, "down")

    audit_services(Down()).put_quietly(b"")
