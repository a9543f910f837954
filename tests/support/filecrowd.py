"""Clients that work with attachments while the vault is killed, and what each of them must find
afterwards.

Every client has two records of its own and knows their files. A call that got no answer was carried
out as a whole or not at all; one look at the records tells which. Every file that a record shows
can be downloaded, and is what was uploaded.
"""

import asyncio
import hashlib
import io
import random
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.recordcrowd import RecordCrowd

MARKER = b"Quibblethwaite"
_NAMES = tuple(f"quibblethwaite {number}.pdf" for number in range(4))
RECORDS = "/api/models/contact"

#: Name of a file -> its hash, by key of its record; a key that is absent has no record.
Files = dict[str, dict[str, str]]


@dataclass
class FileWorker:
    """One client. ``unknown`` is what its records hold if the call was carried out whose answer
    never came.
    """

    keys: tuple[str, str]
    state: Files = field(default_factory=dict)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)  #: of files, by key and name
    unknown: Files | None = None


class FileCrowd(RecordCrowd):
    """The clients, and the installation they work with."""

    def __init__(self, caller: aiohttp.ClientSession, installation: Any, workers: int = 3) -> None:
        super().__init__(caller, installation)
        self.people = [FileWorker((f"p{number}", f"q{number}")) for number in range(workers)]

    async def work(self, worker: FileWorker) -> None:
        """Call after call, until an answer does not come."""
        while True:
            key = random.choice(worker.keys)
            if key not in worker.state:
                after: Files = {**worker.state, key: {}}
                told = await self._called(
                    "create", worker, after, self.ask("POST", RECORDS, {"id": key})
                )
            elif (drawn := random.random()) < 0.5:
                told = await self._upload(worker, key)
            elif drawn < 0.65:
                told = await self._move(worker, key)
            elif drawn < 0.85:
                told = await self._delete(worker, key)
            else:
                after = {other: files for other, files in worker.state.items() if other != key}
                told = await self._called(
                    "end", worker, after, self.ask("DELETE", f"{RECORDS}/{key}", None)
                )
            if not told:
                return

    async def _called(
        self, name: str, worker: FileWorker, after: Files, call: Any, expected: bool = True
    ) -> bool:
        """Await a call; whether it was answered.

        ``expected``: it has to be carried out, or else refused.
        """
        status, content = await call
        self.counts[f"{name} {status or 'killed'}"] += 1
        if not status:
            worker.unknown = after
            return False
        assert (status < 300) == expected, (name, status, content)
        if status < 300:
            worker.state = after
            if name == "upload":
                self._learn(worker, content)
        return True

    def _learn(self, worker: FileWorker, content: dict[str, Any]) -> None:
        key = content["download_link"].split("/")[4]
        worker.ids[key, content["filename"]] = content["file_id"]

    async def _upload(self, worker: FileWorker, key: str) -> bool:
        name, method = random.choice(_NAMES), random.choice(("POST", "PUT"))
        size = random.choice((0, 10, 65_536, 200_000, 1_500_000))
        content = (MARKER + random.randbytes(16)) * (size // 30)
        files = {**worker.state[key], name: hashlib.sha256(content).hexdigest()}
        fits = method == "PUT" or name not in worker.state[key]
        sent = self.send(method, key, name, content)
        return await self._called("upload", worker, {**worker.state, key: files}, sent, fits)

    async def _move(self, worker: FileWorker, key: str) -> bool:
        other = next(one for one in worker.keys if one != key)
        if other not in worker.state or not worker.state[key]:
            return True
        name = random.choice(list(worker.state[key]))
        files = dict(worker.state[key])
        target = {**worker.state[other], name: files.pop(name)}
        sent = self.ask(
            "POST",
            f"{RECORDS}/{key}/files/move/{other}",
            {"attachment_ids": [worker.ids[key, name]]},
        )
        fits = name not in worker.state[other]
        told = await self._called(
            "move", worker, {**worker.state, key: files, other: target}, sent, fits
        )
        if told and fits:
            worker.ids[other, name] = worker.ids.pop((key, name))
        return told

    async def _delete(self, worker: FileWorker, key: str) -> bool:
        if not worker.state[key]:
            return True
        name = random.choice(list(worker.state[key]))
        files = {other: digest for other, digest in worker.state[key].items() if other != name}
        sent = self.ask("DELETE", f"{RECORDS}/{key}/files/{worker.ids[key, name]}", None)
        return await self._called("delete", worker, {**worker.state, key: files}, sent)

    async def send(self, method: str, key: str, name: str, content: bytes) -> tuple[int, Any]:
        """Upload a file to a record; status and content of the answer, (0, None) for none."""
        form = aiohttp.FormData(quote_fields=False)
        form.add_field("file", io.BytesIO(content), filename="x", content_type="text/plain")
        headers = {
            "Authorization": f"Bearer {self._token}",
            "x-filename": name.replace(" ", "%20"),
        }
        try:
            async with self.caller.request(
                method,
                f"{self.installation.vault}{RECORDS}/{key}/files",
                data=form,
                headers=headers,
            ) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError):
            return 0, None

    async def look(self) -> None:
        """Every record has the files that its client knows of, each of them whole."""
        status, content = await self.ask(
            "POST", RECORDS + "/find", {"filter": {}, "options": {"limit": 1000}}
        )
        assert status == 200, content
        assert "unreadable" not in content["meta"]
        shown = {record["id"]: record["attachments"] for record in content["data"]}
        for worker in self.people:
            held = {
                key: {file["filename"]: file["hash"] for file in shown[key]}
                for key in worker.keys
                if key in shown
            }
            assert held in (worker.state, worker.unknown), (worker, held)
            if worker.unknown is not None and worker.unknown != worker.state:
                self.counts[
                    "carried out unheard" if held == worker.unknown else "not carried out"
                ] += 1
            worker.state, worker.unknown = held, None
            worker.ids = {
                (key, file["filename"]): file["file_id"] for key in held for file in shown[key]
            }
        await asyncio.gather(*(self._check(file) for files in shown.values() for file in files))

    async def _check(self, file: dict[str, Any]) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self.caller.get(
            self.installation.vault + file["download_link"], headers=headers
        ) as answer:
            content = await answer.read()
        assert answer.status == 200
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["size"], file["hash"])
