"""Administration over the local socket (``listen.socket``): commands beside a running instance, with
no client and no secret, for the user of the service and for root.
"""

import asyncio
import http.client
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.support.instance import Instance, running

RULES = """\
version: 1
endpoint: {name: app, upstream: "http://127.0.0.1:1"}
"""


def ask_as(user: int, path: Path) -> str:
    """The status line that another user of this machine gets, or why there is none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if user:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            with socket.socket(socket.AF_UNIX) as end:
                end.connect(str(path))
                end.sendall(
                    b"GET /api/clients HTTP/1.1\r\nHost: x\r\nAuthorization: Local default\r\n\r\n"
                )
                os.write(write, end.recv(12))
        except OSError as error:
            os.write(write, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as answer:
        return answer.read().decode()


@pytest.fixture
async def instance(tmp_path):
    path = tmp_path / "admin.sock"
    async with running(tmp_path / "a", RULES, DOMICILE__LISTEN__SOCKET=str(path)) as started:
        yield started


def place(instance: Instance) -> Path:
    return Path(instance.environment["DOMICILE__LISTEN__SOCKET"])


async def test_a_running_instance_is_administered_without_a_client(instance):
    assert place(instance).stat().st_mode & 0o777 == 0o600
    made = await instance.command("client", "create", "--environment", "default", "--admin", "ops")
    assert made["vault_url"].startswith("http://127.0.0.1:")
    (listed,) = (await instance.command("client", "list"))["clients"]
    assert (listed["client_id"], listed["admin"]) == (made["client_id"], True)
    await instance.command("environment", "create", "--id", "acme", "Acme AB")
    environments = (await instance.command("environment", "list"))["environments"]
    assert [one["environment_id"] for one in environments] == ["default", "acme"]
    keys = await instance.command("keys", "rotate", "data", "--environment", "acme")
    assert {one["environment_id"] for one in keys["data"]} == {"default", "acme"}
    assert await instance.command("policy", "list", "--environment", "acme") is not None
    refused = await instance.command("schema", "list", "--environment", "nowhere", status=1)
    assert refused["code"] == "not_found"
    lines = b"".join(path.read_bytes() for path in (instance.data / "audit").glob("*.jsonl"))
    assert b'"by":"local:' in lines
    assert made["client_secret"].encode() not in lines


async def test_the_same_commands_work_on_the_vault_when_it_is_stopped(instance):
    await instance.stop()
    assert not place(instance).exists()
    await instance.command("environment", "create", "--id", "acme", "Acme AB")
    await instance.start()
    assert len((await instance.command("environment", "list"))["environments"]) == 2
    await instance.kill()
    assert place(instance).exists()  # nobody listens at it
    assert len((await instance.command("environment", "list"))["environments"]) == 2
    await instance.start()  # and it is replaced
    assert len((await instance.command("environment", "list"))["environments"]) == 2


async def test_the_word_local_counts_for_nothing_at_the_listener_of_the_vault(instance):
    def ask() -> int:
        connection = http.client.HTTPConnection(instance.vault.removeprefix("http://"))
        try:
            connection.request("GET", "/api/clients", headers={"Authorization": "Local default"})
            return connection.getresponse().status
        finally:
            connection.close()

    assert await asyncio.to_thread(ask) == 401


async def test_another_user_is_kept_out_by_the_mode_and_by_the_kernel(instance, unavailable):
    if os.geteuid() != 0:
        unavailable("becoming another user", "only root can")
    path = place(instance)
    for parent in list(path.parents)[:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    assert ask_as(65534, path) == "PermissionError"
    path.chmod(0o666)
    assert ask_as(65534, path) == "HTTP/1.1 403"
    assert ask_as(0, path) == "HTTP/1.1 200"


async def test_a_place_where_somebody_listens_is_left_alone(tmp_path):
    path = tmp_path / "taken.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(Exception, match=r"listen\.socket"):
            async with running(tmp_path / "a", RULES, DOMICILE__LISTEN__SOCKET=str(path)):
                pass
        assert path.exists()


async def test_a_socket_that_another_process_has_put_in_its_place_stays(tmp_path):
    path = tmp_path / "admin.sock"
    async with running(tmp_path / "a", RULES, DOMICILE__LISTEN__SOCKET=str(path)):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
    assert path.exists()


async def test_nothing_is_told_to_another_user_who_listens_where_everybody_may(
    tmp_path, unavailable
):
    if os.geteuid() != 0:
        unavailable("becoming another user", "only root can")
    for parent in list(tmp_path.parents)[:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o1777)
    path = tmp_path / "admin.sock"
    ready, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(path))
            end.listen()
            os.write(write, b".")
            while True:
                os.write(write, end.accept()[0].recv(100))
        os._exit(0)
    os.close(write)
    with os.fdopen(ready, "rb") as heard:
        heard.read(1)
        instance = Instance(tmp_path / "a", environment={"DOMICILE__LISTEN__SOCKET": str(path)})
        instance.folder.mkdir()
        refused = await instance.command("client", "list", status=1)
        assert "Another user" in refused["message"]
        os.kill(child, signal.SIGKILL)
        assert heard.read() == b""
    await asyncio.to_thread(os.waitpid, child, 0)
