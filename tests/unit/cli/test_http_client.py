import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proxy.cli.http_client import HttpAnswer, HttpClient, seconds_to_wait
from tests.support.adopted import Adopted, adopted


@pytest.fixture
def office() -> Iterator[Adopted]:
    with adopted(2) as office:
        yield office


def test_each_thread_has_a_connection_of_its_own(office):
    answers: list[HttpAnswer | None] = []
    with closing(HttpClient(office.url, 10)) as client:
        ask: tuple[str, str, bytes, dict[str, str]] = ("GET", "/people/p1", b"", {})
        threads = [
            threading.Thread(target=lambda: answers.append(client.send_once(*ask)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [one and one.status for one in answers] == [200, 200, 200]


def test_a_connection_that_broke_is_made_again(office):
    with closing(HttpClient(office.url, 10)) as client:
        office.failures = [0]
        answers = [client.send_once("GET", "/people/p1", b"", {}) for _ in range(2)]
        client.close()
        client.close()
        answers.append(client.send_once("GET", "/people/p1", b"", {}))
    assert [one and one.status for one in answers] == [None, 200, 200]


def test_nobody_waits_for_a_client_that_was_stopped(office):
    office.failures = [503] * 3
    with closing(HttpClient(office.url, 10)) as client:
        client.stop()
        answer = client.send_with_retries(("GET", "/people", b"", {}), (503,), 3600)
    assert answer is not None
    assert answer.status == 503
    assert len(office.failures) == 2


def test_a_path_of_a_socket_is_an_address(tmp_path: Path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 204 No Content\r\nX-Name: v\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with closing(HttpClient(f"unix:{path}", 10)) as client:
            answer = client.send_once("GET", "/", b"", {})
        thread.join()
    assert answer == HttpAnswer(204, {"x-name": "v"}, b"")


def test_an_answer_that_says_when_is_believed_within_reason():
    for text, seconds in (("7", 7.0), ("9999", 30.0), ("Mon, 23 Nov", 0.1)):
        assert seconds_to_wait(HttpAnswer(429, {"retry-after": text}, b""), 0) == seconds


def test_weak_tags_are_no_conditions():
    assert HttpAnswer(200, {"etag": '"7"'}, b"").tag == '"7"'
    assert HttpAnswer(200, {"etag": 'W/"7"'}, b"").tag == ""
