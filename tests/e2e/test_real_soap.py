"""A service of SOAP (Spyne) and its usual client (Zeep), with the proxy between them and
``rules/examples/soap.yaml``.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.application import found_in
from tests.support.instance import running
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, post
from tests.support.real.installed import SOAP, environment
from tests.support.real.wire import Wire, tapped

RULES = (Path(__file__).parents[2] / "rules" / "examples" / "soap.yaml").read_text()
ADDRESS = 'upstream: "http://127.0.0.1:8000"'

_SERVER = """\
import json, sys
from wsgiref.simple_server import WSGIRequestHandler, make_server
from spyne import Application, Array, ComplexModel, Fault, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11
from spyne.server.wsgi import WsgiApplication

class Contact(ComplexModel):
    __namespace__ = "urn:contacts"
    id = Integer
    name = Unicode
    email = Unicode
    phone = Unicode

stored = {}

def save():
    rows = {key: [one.name, one.email, one.phone] for key, one in stored.items()}
    with open(sys.argv[1], "w") as file:
        json.dump(rows, file)

class Contacts(ServiceBase):
    @rpc(Contact, _returns=Contact)
    def Create(ctx, contact):
        contact.id = len(stored) + 1
        stored[contact.id] = contact
        save()
        return contact

    @rpc(Integer, _returns=Contact)
    def Get(ctx, id):
        return stored[id]

    @rpc(_returns=Array(Contact))
    def List(ctx):
        return list(stored.values())

    @rpc(Unicode, _returns=Array(Contact))
    def FindByEmail(ctx, email):
        return [one for one in stored.values() if one.email == email]

    @rpc(Contact, _returns=Contact)
    def Update(ctx, contact):
        if not contact.name:
            raise Fault("Client", f"no name, but {contact.email}")
        stored[contact.id] = contact
        save()
        return contact

    @rpc(Integer, _returns=Unicode)
    def Remove(ctx, id):
        del stored[id]
        save()
        return "done"

class Quiet(WSGIRequestHandler):
    def log_request(self, *_):
        pass

protocols = {"in_protocol": Soap11(validator="lxml"), "out_protocol": Soap11()}
application = WsgiApplication(Application([Contacts], "urn:contacts", **protocols))
with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""
#: Calls its service as told, a line of JSON each, and says what came of it.
_CLIENT = """\
import json, sys
import zeep
from zeep.helpers import serialize_object

client = zeep.Client(sys.argv[1] + "/?wsdl")
for line in sys.stdin:
    name, arguments = json.loads(line)
    service = client.create_service("{urn:contacts}Application", sys.argv[1] + "/")
    try:
        answer = serialize_object(getattr(service, name)(*arguments), dict)
    except zeep.exceptions.Fault as fault:
        answer = fault.message
    print(json.dumps(answer), flush=True)
"""
ANN = {
    "name": "Zorbina <Quibblethwaite> & Söhne", "email": "Zorbina.Q@Wexlomere.example",
    "phone": "+46 70 918 27 36",
}  # fmt: skip
BOB = {"name": "Bob Flumpergat", "email": "bob@yxmarker.example", "phone": "+46 70 918 27 37"}
MARKERS = ("Zorbina", "Quibblethwaite", "Wexlomere", "918 27", "Flumpergat", "yxmarker")


@dataclass
class Caller:
    """The client in a process of its own."""

    process: asyncio.subprocess.Process

    async def __call__(self, name: str, *arguments: Any) -> Any:
        reader, writer = self.process.stdout, self.process.stdin
        assert reader is not None
        assert writer is not None
        writer.write(json.dumps([name, arguments]).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
        assert line, "the client has ended"
        return json.loads(line)


@asynccontextmanager
async def started(code: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(str(environment(SOAP)), "-W", "ignore", "-c", code, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=sys.stderr,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[tuple[Caller, Wire, int]]:
    """The client before the proxy, what reached the service, and the port of the proxy."""
    async with started(_SERVER, str(folder / "contacts.json")) as server:
        assert server.stdout is not None
        async with tapped(int(await server.stdout.readline())) as wire:
            assert RULES.count(ADDRESS) == 1
            rules = RULES.replace(ADDRESS, f'upstream: "{wire.address}"')
            async with (
                running(folder, rules) as instance,
                started(_CLIENT, instance.proxy) as client,
            ):
                yield Caller(client), wire, int(instance.proxy.rpartition(":")[2])


def leaked(*heaps: bytes) -> list[str]:
    return [marker for marker in MARKERS if any(found_in(heap, marker) for heap in heaps)]


async def test_people_reach_the_client_and_tokens_the_service(tmp_path: Path) -> None:
    async with service(tmp_path) as (call, wire, _):
        assert await call("Create", ANN) == {**ANN, "id": 1}
        assert await call("Create", BOB) == {**BOB, "id": 2}
        assert await call("Get", 1) == {**ANN, "id": 1}
        assert await call("List") == [{**ANN, "id": 1}, {**BOB, "id": 2}]
        assert await call("FindByEmail", ANN["email"]) == [{**ANN, "id": 1}]
        changed = {**ANN, "id": 1, "email": "new@yxmarker.example"}
        assert await call("Update", changed) == changed
        assert await call("Get", 1) == changed
        fault = await call("Update", {"id": 1, "email": "other@yxmarker.example"})
        assert "no name, but other@yxmarker.example" in fault
        assert await call("Get", 1) == changed
        assert await call("Remove", 1) == "done"
        assert await call("List") == [{**BOB, "id": 2}]
        assert leaked(bytes(wire.sent), (tmp_path / "contacts.json").read_bytes()) == []


async def test_what_the_rules_cannot_read_never_reaches_the_service(tmp_path: Path) -> None:
    envelope = (
        "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/' xmlns='urn:contacts'>"
        "<s:Body>%s</s:Body></s:Envelope>"
    )
    create = "<Create><contact><name>Zorbina</name></contact></Create>"
    entity = "<!DOCTYPE x [<!ENTITY n 'Zorbina'>]>" + envelope % create.replace("Zorbina", "&n;")
    async with service(tmp_path) as (_, wire, port):
        for document, action, status in (
            (envelope % create, '"List"', 200),  # what the body says counts
            (entity, '"Create"', 415),
            (envelope % create.replace("Create", "create"), '"Create"', 400),
            (envelope % (create * 2), '"Create"', 400),
            (envelope % create.replace("Zorbina", "<b>Zorbina</b>"), '"Create"', 422),
            (envelope % "<Other>Zorbina</Other>", '"Other"', 403),
        ):
            fields = "Content-Type: text/xml; charset=utf-8", f"SOAPAction: {action}"
            async with RawClient(port) as client:
                answer = await client.ask(post("/", document.encode(), *fields))
            assert (answer.status, b"Zorbina" in answer.body) == (status, status == 200), document
        assert leaked(bytes(wire.sent)) == []
