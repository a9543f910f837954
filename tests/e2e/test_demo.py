"""``domicile demo`` as a newcomer meets it: a process, a terminal, Ctrl-C."""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.demo.store import PEOPLE
from tests.support.auth import basic
from tests.support.demo import Demo, demo, sample_rules
from tests.support.lives import write_command
from tests.support.patience import PATIENCE
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable


async def contacts(address: str) -> list[dict[str, Any]]:
    async with aiohttp.ClientSession() as client, client.get(f"{address}/api/contacts") as answer:
        found: list[dict[str, Any]] = (await answer.json())["items"]
        return found


def domicile(
    folder: Path, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    write_command(command := folder.with_name(f"{folder.name}-bin") / "domicile")
    return subprocess.run(
        [command, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def taken() -> Iterator[list[int]]:
    """Ports that somebody listens at: the usual ones of the demo, and one more."""
    with ExitStack() as stack:
        ports = []
        for wanted in (0, 8080, 8081, 8082, 3000):
            server = stack.enter_context(socket.socket())
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind(("127.0.0.1", wanted))
            except OSError:
                continue  # somebody else has it
            server.listen()
            ports.append(server.getsockname()[1])
        yield ports


async def test_the_addresses_lead_to_people_and_to_tokens(tmp_path: Path) -> None:
    async with demo(tmp_path) as running:
        people, stored = await contacts(running.proxy), await contacts(running.application)
        assert [{**contact, "id": 0} for contact in people] == [
            {**person, "id": 0} for person in PEOPLE
        ]
        assert [contact["address"]["city"] for contact in stored] == [
            contact["address"]["city"] for contact in people
        ]
        for person, record in zip(people, stored, strict=True):
            for field in ("first_name", "last_name", "email", "phone", "card", "birth_date"):
                assert person[field] != record[field]
        async with aiohttp.ClientSession() as client, client.get(running.page) as answer:
            assert running.proxy in await answer.text()
        text = (tmp_path / "demo-data" / "contacts.json").read_text("utf-8")
        assert not any(person["email"] in text or person["last_name"] in text for person in PEOPLE)


async def test_the_three_lines_to_try_work_as_printed(
    tmp_path: Path, unavailable: Unavailable
) -> None:
    if shutil.which("curl") is None:
        unavailable("the lines of curl that the demo prints", "this machine has no curl")
    async with demo(tmp_path) as running:
        assert len(running.commands) == 3
        texts = running.text.replace(str(tmp_path), "").splitlines()
        assert [line for line in texts if len(line) >= 140] == []
        answers = [json.loads(await shell(line)) for line in running.commands]
        assert answers[0]["items"][0]["first_name"] == PEOPLE[0]["first_name"]
        assert answers[1]["items"][0]["first_name"] != PEOPLE[0]["first_name"]
        assert answers[2]["first_name"] == "Edith"
        assert (await contacts(running.proxy))[-1]["last_name"] == "Holm"
        assert (await contacts(running.application))[-1]["last_name"] != "Holm"


async def test_the_client_it_shows_gets_tokens_and_is_one_however_often_it_is_started(
    tmp_path: Path,
) -> None:
    shown = []
    for _ in range(2):
        async with demo(tmp_path) as running, aiohttp.ClientSession() as caller:
            auth = (running.shown("client id"), running.shown("client secret"))
            vault = running.shown("own interface").removesuffix("/docs")
            form = {"grant_type": "client_credentials", "audience": vault}
            async with caller.post(
                f"{vault}/oauth2/token", data=form, headers={"Authorization": basic(*auth)}
            ) as answer:
                token = (await answer.json())["access_token"]
            async with caller.get(
                f"{vault}/api/clients", headers={"Authorization": f"Bearer {token}"}
            ) as answer:
                assert [client["client_id"] for client in (await answer.json())["data"]] == [
                    auth[0]
                ]
            shown.append(auth)
    (first, secret), (second, another) = shown
    assert first == second
    assert secret != another


async def test_an_edited_rule_file_is_told_when_it_is_refused_and_when_it_takes_effect(
    tmp_path: Path,
) -> None:
    async with demo(tmp_path) as running:
        text = running.rules.read_text("utf-8")
        running.rules.write_text(text.replace("{kind: phone,", "{kind: fone,"), "utf-8")
        told = await said(running, "a fault in the rules")
        assert "did you mean 'phone'?" in told
        running.rules.write_text(text.replace("keep_last: 2", "keep_last: 3"), "utf-8")
        assert "a fault in the rules" not in await said(running, "rules are active")


async def said(running: Demo, event: str) -> str:
    """The lines that it prints up to one about that event."""
    assert running.process.stdout is not None
    lines = [""]
    async with asyncio.timeout(PATIENCE):
        while event not in lines[-1]:
            lines.append((await running.process.stdout.readline()).decode())
            assert lines[-1], "".join(lines)
    return "".join(lines)


async def shell(line: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", line, stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, line
    return answer


async def test_ctrl_c_ends_it_cleanly_even_while_somebody_watches(tmp_path: Path) -> None:
    async with demo(tmp_path) as running, aiohttp.ClientSession() as client:
        async with client.get(f"{running.page}/events") as watched:
            assert (await watched.content.readline()).startswith(b"data: ")
            status, rest = await running.interrupted()
        assert status == 0
        assert rest.strip().startswith("Stopped")
        assert "Traceback" not in rest
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(running.proxy)


async def test_nothing_of_its_own_pages_is_reported(tmp_path: Path) -> None:
    async with demo(tmp_path) as running:
        async with aiohttp.ClientSession(running.proxy) as client:
            page = await (await client.get("/contacts")).text()
            assets = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
            assert assets
            for path in ("/", "/contacts/1", *assets):
                async with client.get(path) as answer:
                    assert (answer.status, bool(await answer.read())) == (200, True)
            async with client.get("/nobody/named/this") as answer:
                await answer.read()
        rest = ""  # it is looked at behind its answer, and an end waits for little
        assert running.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while "/{word}/{word2}/{word3}" not in rest:
                rest += (await running.process.stdout.readline()).decode()
        rest += (await running.interrupted())[1]
    told = [line for line in rest.splitlines() if "no rule names" in line or "suspected" in line]
    # a client of another test may ask here, where its server had this port before
    assert not [line for line in told if re.search('path="?/(?:contacts|static|[ "])', line)], rest


async def test_a_second_start_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    async with demo(tmp_path) as running:
        async with aiohttp.ClientSession() as client:
            added = {"first_name": "Edith", "last_name": "Holm"}
            async with client.post(f"{running.proxy}/api/contacts", json=added) as answer:
                await answer.read()
        people, stored = await contacts(running.proxy), await contacts(running.application)
        assert (await running.interrupted())[0] == 0
    async with demo(tmp_path) as running:
        assert await contacts(running.proxy) == people
        assert await contacts(running.application) == stored
    assert people[-1]["first_name"] == "Edith"


async def test_ports_that_others_have_are_replaced_by_free_ones(
    tmp_path: Path, taken: list[int]
) -> None:
    async with demo(tmp_path, "--port", str(taken[0])) as running:
        assert not {port_of(address) for address in addresses(running)} & set(taken)
        assert len(await contacts(running.proxy)) == len(PEOPLE)
        async with aiohttp.ClientSession() as client, client.get(running.page) as answer:
            assert answer.status == 200


def addresses(running: Demo) -> tuple[str, str, str]:
    return running.page, running.proxy, running.application


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_it_never_touches_the_vault_that_the_settings_name(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (tmp_path / "domicile.yaml").write_text(
        f"country: no\nstore: sqlite:///{real}/vault.db\nkeys: file:///{real}/keys.json\n"
    )
    async with demo(tmp_path):
        assert not real.exists()
        assert {path.name for path in (tmp_path / "demo-data").iterdir()} >= {
            "vault.db",
            "keys.json",
            "contacts.json",
        }


async def test_elsewhere_than_in_a_clone_it_goes_by_a_copy_of_its_rules(tmp_path: Path) -> None:
    async with demo(tmp_path, clone=False) as running:
        copy = tmp_path / "demo-data" / "contacts.yaml"
        assert str(copy) in running.text
        assert copy.read_text() == (ROOT / "rules" / "contacts.yaml").read_text()


def test_a_folder_that_takes_no_files_is_told_in_one_sentence(tmp_path: Path) -> None:
    sample_rules(tmp_path)
    (tmp_path / "file").write_text("")
    done = domicile(tmp_path, "demo", "--data", "file/data")
    assert done.returncode == 1
    assert done.stderr.startswith("domicile: ")
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "file") in done.stderr


def test_rules_that_the_sample_people_do_not_fit_are_told_in_one_sentence(tmp_path: Path) -> None:
    sample_rules(tmp_path)
    rules = tmp_path / "rules" / "contacts.yaml"
    shape = "{kind: card, token: {shape: luhn, keep_last: 4}}"
    assert shape in rules.read_text()
    rules.write_text(rules.read_text().replace(shape, "{kind: card, token: {shape: opaque}}"))
    done = domicile(tmp_path, "demo")
    assert done.returncode == 1
    assert "which answered 422" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_demo_on_the_same_data_is_refused(tmp_path: Path) -> None:
    async def both() -> "subprocess.CompletedProcess[str]":
        async with demo(tmp_path):
            return await asyncio.to_thread(domicile, tmp_path, "demo")

    done = asyncio.run(both())
    assert done.returncode == 1
    assert "vault.db" in done.stderr
    assert "Traceback" not in done.stderr
