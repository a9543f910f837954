import re
import socket
import threading

import pytest

from proxy.audit.shipping import SyslogSink, message

LINE = b'{"n":7,"at":"2026-11-22T03:00:00.000Z","event":"alarm","prev":"0","hash":"1"}\n'

#: RFC 5424, section 6: PRI, version, time, host, program, process, kind, structured data, text.
FORM = re.compile(rb"<(\d+)>1 (\S+) (\S+) domicile (\d+) audit - (.*)", re.DOTALL)


@pytest.mark.parametrize(
    ("event", "priority"),
    [(b"alarm", 105), (b"refused", 108), (b"log", 110), (b"reveal", 109), (b"write", 109)],
)
def test_a_message_has_the_facility_of_audits_and_the_severity_of_its_event(event, priority):
    found = FORM.fullmatch(message(LINE.replace(b"alarm", event), b"host domicile 1 audit -"))
    assert found is not None
    assert int(found[1]) == priority
    assert found[2] == b"2026-11-22T03:00:00.000Z"
    assert found[5] == LINE.replace(b"alarm", event).rstrip()


def test_a_line_of_somebody_else_is_passed_on_all_the_same():
    assert message(b"x\n", b"h domicile 1 audit -") == b"<109>1 - h domicile 1 audit - x"


def test_udp_takes_one_message_a_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(20)
        way = SyslogSink("udp", "127.0.0.1", server.getsockname()[1])
        way.send(LINE)
        assert FORM.fullmatch(server.recv(4096)) is not None
        way.close()
        way.close()


def test_a_local_socket_takes_one_message_a_datagram(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        server.settimeout(20)
        way = SyslogSink("unix", str(tmp_path / "log"))
        way.send(LINE)
        assert FORM.fullmatch(server.recv(4096)) is not None
        way.close()
    with pytest.raises(OSError, match=r"."):
        SyslogSink("unix", str(tmp_path / "none")).send(LINE)


def test_tcp_counts_octets_and_a_broken_connection_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        way = SyslogSink("tcp", "127.0.0.1", server.getsockname()[1])
        got: list[bytes] = []

        def take() -> None:
            peer, _ = server.accept()
            with peer, peer.makefile("rb") as file:
                for _ in range(2):
                    size = b""
                    while (one := file.read(1)) != b" ":
                        size += one
                    got.append(file.read(int(size)))

        thread = threading.Thread(target=take)
        thread.start()
        way.send(LINE)
        way.send(LINE)
        thread.join(20)
        assert [FORM.fullmatch(one) is not None for one in got] == [True, True]

    def on_and_on() -> None:
        for _ in range(100_000):
            way.send(LINE)

    with pytest.raises(OSError, match=r"."):
        on_and_on()
