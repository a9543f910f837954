"""The public JSON parsing corpus and the naughty strings through the whole proxy, as JSON and as
forms, with a rule and without.

Without a rule every byte arrives as it was sent. With one, every byte but those of the swapped
value does; and of what does not parse nothing arrives at all.
"""

import base64
import gzip
import json
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

import pytest
import pytest_asyncio

from tests.support.instance import running
from tests.support.people import rules
from tests.support.rawclient import RawClient, post
from tests.support.rawhttp import Message, Wire
from tests.support.rawserver import RawServer
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

pytestmark = pytest.mark.asyncio(loop_scope="module")

PUBLIC = ROOT.parent / "shared/data/public"
JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"
MARKER = "Quibblethwaite"


async def behave(wire: Wire, server: RawServer) -> None:
    """Takes everything: answers what was sent with an id, or says where it is."""
    while True:
        request = await server.read(wire)
        ident = len(server.requests)
        if request.start.startswith(b"POST /people/form "):
            await wire.send(
                b"HTTP/1.1 302 Found\r\nLocation: /people/%d\r\nContent-Length: 0\r\n\r\n" % ident
            )
            continue
        body = b'{"id": %d,' % ident + request.body.lstrip()[1:]
        head = (
            b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        )
        await wire.send(head + body)


class Line:
    """One kept connection of a caller, and what arrives at the other end."""

    def __init__(self, port: int, server: RawServer) -> None:
        self.port = port
        self.server = server
        self._client: RawClient | None = None

    async def post(self, path: str, body: bytes, kind: str) -> tuple[Message, bytes | None]:
        """The answer, and the body that the application got, or ``None`` where it got nothing."""
        count = len(self.server.requests)
        if self._client is None:
            self._client = await RawClient(self.port).__aenter__()
        answer = await self._client.ask(post(path, body, kind), 30)
        if b"close" in answer.all("connection"):
            await self.close()
        arrived = self.server.requests[count:]
        assert len(arrived) <= 1
        return answer, arrived[0].body if arrived else None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.__aexit__()
            self._client = None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    async with RawServer(behave) as server:
        # the same string stands where a rule names it and where none does: the guard would refuse
        text = rules(server.url) + 'on_error: {guard: "off"}\n'
        async with running(tmp_path_factory.mktemp("corpora"), text) as instance:
            made = Line(int(instance.proxy.rpartition(":")[2]), server)
            yield made
            await made.close()
            assert MARKER.encode() not in bytes(instance.log)


def corpus() -> dict[str, bytes]:
    packed = json.loads(gzip.decompress((PUBLIC / "jsontestsuite.b64.json.gz").read_bytes()))
    return {name.rpartition("/")[2]: base64.b64decode(text) for name, text in packed.items()}


def naughty() -> list[str]:
    strings: list[str] = json.loads((PUBLIC / "blns.json").read_text("utf-8"))
    return [text for text in dict.fromkeys(strings) if text]


@pytest.fixture(autouse=True)
def _public(unavailable: Unavailable) -> None:
    if not (PUBLIC / "blns.json").exists():
        unavailable(
            "the public corpora through the proxy",
            "the public test data is not beside the repository",
        )


async def test_the_parsing_corpus_passes_exactly_where_no_rule_names_it(line: Line) -> None:
    for name, body in corpus().items():
        _, arrived = await line.post("/elsewhere", body, JSON)
        assert arrived == body, name


def refused_by_all(body: bytes) -> bool:
    """Whether the standard library, made strict, takes it for no JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(body.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return True
    return False


async def test_of_the_parsing_corpus_only_json_passes_a_rule_and_exactly(line: Line) -> None:
    forwarded = refused = 0
    for name, document in corpus().items():
        before, after = b'{"name":"', b'" ,"x" :' + document + b"}"
        answer, arrived = await line.post("/people", before + MARKER.encode() + after, JSON)
        if arrived is None:
            assert answer.status in (400, 413, 415), name
            refused += 1
            continue
        forwarded += 1
        assert not refused_by_all(before + MARKER.encode() + after), name
        assert arrived.startswith(before), name
        assert arrived.endswith(after), name
        token = arrived[len(before) : len(arrived) - len(after)]
        assert token.isalnum(), name
        assert MARKER.encode() not in arrived, name
        assert (
            answer.body
            == b'{"id": %d,' % len(line.server.requests) + (before + MARKER.encode() + after)[1:]
        ), name
    assert forwarded > 90
    assert refused > 180


async def test_what_is_no_document_of_its_own_never_reaches_the_application(line: Line) -> None:
    for name, document in corpus().items():
        body = document.replace(
            b"a", b'name":"' + MARKER.encode()
        )  # breaks most, and turns some names into the ruled one
        _, arrived = await line.post("/people", body, JSON)
        assert arrived is None or MARKER.encode() not in arrived or not refused_by_all(body), name


@pytest.mark.parametrize("ascii_only", [True, False])
async def test_naughty_strings_in_json_come_back_as_they_were_sent(
    line: Line, ascii_only: bool
) -> None:
    for text in naughty():
        spelled = json.dumps(text, ensure_ascii=ascii_only).encode()
        body = b'{"name": ' + spelled + b', "x" : ' + spelled + b"}"
        assert (await line.post("/elsewhere", body, JSON))[1] == body
        answer, arrived = await line.post("/people", body, JSON)
        assert arrived is not None, text
        name = json.loads(arrived)["name"]
        assert name != text
        assert arrived == b'{"name": ' + json.dumps(name).encode() + b', "x" : ' + spelled + b"}"
        assert json.loads(answer.body) == {"id": len(line.server.requests), "name": text, "x": text}


@pytest.mark.parametrize(
    "write", [quote, lambda text: quote(text, safe="/:;,@!$'()*?~ ").replace(" ", "+")]
)
async def test_naughty_strings_in_forms_arrive_exactly_but_for_the_ruled_one(
    line: Line, write: Callable[[str], str]
) -> None:
    for text in naughty():
        spelled = write(text).encode()
        body = b"&x=" + spelled + b"&name=" + spelled + b"&&vip"
        assert (await line.post("/elsewhere", body, FORM))[1] == body
        answer, arrived = await line.post("/people/form", body, FORM)
        if arrived is None:
            # what older applications take for the start of another member
            assert b";" in spelled, text
            assert answer.status in (400, 415)
            continue
        assert answer.status == 302
        before, after = b"&x=" + spelled + b"&name=", b"&&vip"
        assert arrived.startswith(before), text
        assert arrived.endswith(after), text
        assert arrived[len(before) : -len(after)].isalnum()
        assert arrived != body
