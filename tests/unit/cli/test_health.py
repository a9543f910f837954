import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from proxy.cli import health, main
from tests.support.patience import PATIENCE
from tests.support.ports import closed_port


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server for one connection that answers these bytes; its port, and the request it got."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                requests.append(connection.recv(4096))
                if answer:
                    connection.sendall(answer)
                else:
                    connection.recv(1)  # says nothing until the caller gives up

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], requests
        thread.join(timeout=PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def settings(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    monkeypatch.chdir(tmp_path)
    return lambda port: monkeypatch.setenv("DOMICILE__LISTEN__ADMIN", f"127.0.0.1:{port}")


def test_an_answer_of_200_is_healthy(capsys):
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (port, requests):
        assert (
            main(["health", "--timeout", "60", "--url", f"http://127.0.0.1:{port}/healthz?x=1"])
            == 0
        )
    assert requests[0].startswith(b"GET /healthz?x=1 HTTP/1.1\r\n")
    assert capsys.readouterr().out == f"http://127.0.0.1:{port}/healthz?x=1: 200 OK\n"


@pytest.mark.parametrize(
    ("place", "asked"),
    [("", b"/healthz"), ("/", b"/healthz"), ("?x=1", b"/healthz?x=1"), ("/readyz", b"/readyz")],
)
def test_an_address_without_a_path_is_asked_for_its_health(place, asked):
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (port, requests):
        url = f"http://127.0.0.1:{port}{place}"
        assert main(["health", "--timeout", "60", "--url", url]) == 0
    assert requests[0].startswith(b"GET " + asked + b" HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"checks": {"vault": "ok", "rules": "stale: a fault"}}', "; rules: stale: a fault"),
        (b'{"checks": {"vault": "ok"}}', ""),
        (b'{"checks": ["vault"]}', ""),
        (b"[1]", ""),
        (b"well", ""),
    ],
)
def test_checks_that_are_not_in_order_are_told(body, told, capsys):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(head + body) as (port, _):
        url = f"http://127.0.0.1:{port}/readyz"
        assert main(["health", "--timeout", "60", "--url", url]) == 0
    assert capsys.readouterr().out == f"{url}: 200 OK{told}\n"


@pytest.mark.parametrize("status", [b"503 Service Unavailable", b"404 Not Found", b"302 Found"])
def test_any_other_answer_is_not(status, capsys):
    with answering(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n") as (port, _):
        assert (
            main(
                ["health", "--json", "--timeout", "60", "--url", f"http://127.0.0.1:{port}/readyz"]
            )
            == 1
        )
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "healthy": False,
        "url": f"http://127.0.0.1:{port}/readyz",
        "status": int(status[:3]),
    }


@pytest.mark.parametrize(("words", "path"), [([], b"/healthz"), (["--ready"], b"/readyz")])
def test_without_an_address_the_admin_listener_of_the_settings_is_asked(words, path, settings):
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (port, requests):
        settings(port)
        assert main(["health", "--timeout", "60", *words]) == 0
    assert requests[0].startswith(b"GET " + path + b" HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("listen", "asked"),
    [("0.0.0.0:9", "127.0.0.1:9"), ("[::]:9", "[::1]:9"), ("10.0.0.7:9", "10.0.0.7:9")],
)
def test_a_listener_on_every_address_is_asked_on_loopback(
    listen, asked, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOMICILE__LISTEN__ADMIN", listen)
    monkeypatch.setenv("DOMICILE__LISTEN__INSECURE", "true")
    monkeypatch.setattr(health, "probe", lambda _url, _timeout: (200, "200 OK"))
    assert main(["health", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["url"] == f"http://{asked}/healthz"


def test_nobody_listening_is_not_healthy(capsys):
    with closed_port() as port:
        assert main(["health", "--url", f"http://127.0.0.1:{port}/"]) == 1
    assert "is the service running" in capsys.readouterr().out


def test_silence_is_not_healthy_and_ends_in_time():
    with answering(b"") as (port, _):
        assert health.probe(f"http://127.0.0.1:{port}/", 0.1) == (None, "no answer within 0.1 s")


def test_what_does_not_speak_http_is_not_healthy():
    with answering(b"SSH-2.0-x\r\n") as (port, _):
        assert health.probe(f"http://127.0.0.1:{port}/", PATIENCE) == (
            None,
            "what answers there does not speak HTTP",
        )


@pytest.mark.parametrize(
    "words",
    [
        ["--url", "127.0.0.1:8082"],
        ["--url", "https://127.0.0.1/"],
        ["--url", "http://"],
        ["--url", "http://[::1/"],
        ["--url", "http://127.0.0.1:99999/"],
        ["--url", "http://127.0.0.1/a b"],
        ["--url", ""],
        ["--timeout", "0"],
        ["--timeout", "soon"],
        ["--timeout", "nan"],
        ["--url", "http://127.0.0.1/", "--ready"],
    ],
)
def test_wrong_usage_is_status_2(words, capsys):
    assert main(["health", *words]) == 2
    assert "usage: domicile health" in capsys.readouterr().err


def test_faulty_settings_are_named(settings, monkeypatch, capsys):
    monkeypatch.setenv("DOMICILE__LISTN", "x")
    assert main(["health"]) == 1
    assert "DOMICILE__LISTN" in capsys.readouterr().err


def test_a_probe_loads_no_part_of_the_server():
    code = "import sys, proxy.cli; proxy.cli.main(['health', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "proxy.cli.health" in loaded
    assert (
        loaded
        & {
            "aiohttp", "asyncio", "cryptography", "proxy.bootstrap.instance", "sqlite3",
            "structlog", "uvloop",
        }
        == set()
    )  # fmt: skip
