"""Views through real sockets: an issuer that signs tokens, an application that stores what it is
sent, and callers of every role; by the example file itself.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web

from proxy.bootstrap.instance import Running, running
from proxy.cli import main
from proxy.clock import system_clock
from proxy.config import load_settings
from proxy.errors import VaultError
from tests.support.audit import told
from tests.support.certificates import Authority
from tests.support.issuer import claims, document, made, public, token
from tests.support.rawclient import RawClient, get
from tests.support.rawhttp import Wire
from tests.support.rawserver import RawServer
from tests.support.secured import trusting
from tests.support.serving import serving
from tests.support.tree import ROOT

KEY = made("ES256")
EXAMPLE = ROOT / "rules/examples/views.yaml"
ANN = {
    "name": "Ann Lind",
    "email": "ann@example.com",
    "phone": "+46701740605",
    "card": "4111111111111111",
}
MASKED = {
    "name": "A** ****",
    "email": "a**@example.com",
    "phone": "+•••••••0605",
    "card": "************1111",
}
SEEN = {"dpo": ANN, "support": MASKED}


class Contacts:
    """Stores contacts, lets everybody cache them, and goes by the caller's token itself."""

    def __init__(self) -> None:
        self.stored: dict[int, dict[str, Any]] = {}
        self.tokens: list[str | None] = []
        self.version = 0
        self.tagged = True

    def app(self) -> web.Application:
        made = web.Application()
        made.router.add_post("/contacts", self._write)
        made.router.add_put("/contacts/{id}", self._write)
        made.router.add_get("/contacts", self._list)
        made.router.add_get("/contacts/{id}", self._read)
        return made

    def _answer(self, content: Any, status: int = 200) -> web.Response:
        headers = {
            **({"ETag": f'"v{self.version}"'} if self.tagged else {}),
            "Cache-Control": "public, max-age=60",
            "Vary": "Accept",
        }
        return web.json_response(content, status=status, headers=headers)

    async def _write(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization"))
        if request.headers.get("If-Match", f'"v{self.version}"') != f'"v{self.version}"':
            return web.json_response({}, status=412)
        key = int(request.match_info.get("id", len(self.stored) + 1))
        self.stored[key] = {**await request.json(), "id": key}
        self.version += 1
        return self._answer(self.stored[key], 201 if request.method == "POST" else 200)

    async def _read(self, request: web.Request) -> web.Response:
        return self._answer(self.stored[int(request.match_info["id"])])

    async def _list(self, request: web.Request) -> web.Response:
        wanted = request.query.get("email")
        return self._answer(
            [one for one in self.stored.values() if wanted is None or one.get("email") == wanted]
        )


class Keys:
    """What the issuer publishes; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def behave(self, wire: Wire, server: RawServer) -> None:
        body = document(public(KEY, kid="one"))
        while True:
            await server.read(wire)
            self.asked += 1
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


class Office(NamedTuple):
    """A running instance with its application and issuer."""

    instance: Running
    contacts: Contacts
    keys: Keys
    session: aiohttp.ClientSession
    folder: Path

    async def ask(
        self, method: str, path: str, role: str | None = None, **more: Any
    ) -> tuple[aiohttp.ClientResponse, Any]:
        headers = more.pop("headers", {})
        if role is not None:
            headers = {"Authorization": f"Bearer {signed(role)}", **headers}
        url = f"http://{self.instance.proxy}{path}"
        async with self.session.request(method, url, headers=headers, **more) as answer:
            body = await answer.read()
            return answer, json.loads(body) if body else None


def signed(*roles: str, **more: Any) -> str:
    usual = {"iss": "https://id.example.com", "aud": "contacts", "roles": roles}
    return token(KEY, claims(system_clock(), **{**usual, **more}), kid="one")


def settings(folder: Path, **more: str) -> dict[str, str]:
    listen = {f"LISTEN__{name}": "127.0.0.1:0" for name in ("PROXY", "VAULT", "ADMIN")}
    own = {"COUNTRY": "se", "DATA": f"{folder / 'data'}", "RULES": f"{folder / 'rules.yaml'}"}
    return {f"DOMICILE__{name}": text for name, text in {**own, **listen, **more}.items()}


@asynccontextmanager
async def office(folder: Path) -> AsyncIterator[Office]:
    contacts, keys = Contacts(), Keys()
    async with serving(contacts.app()) as upstream, RawServer(keys.behave) as server:
        text = EXAMPLE.read_text("utf-8").replace("http://127.0.0.1:3000", upstream)
        text = text.replace("https://id.example.com/jwks.json", f"{server.url}/keys")
        (folder / "rules.yaml").write_text(text, "utf-8")
        async with (
            running(load_settings(None, settings(folder))) as instance,
            aiohttp.ClientSession() as session,
        ):
            yield Office(instance, contacts, keys, session, folder)


async def test_callers_see_what_their_roles_let_them(tmp_path):
    async with office(tmp_path) as one:
        answer, shown = await one.ask("POST", "/contacts", "sales", json=ANN)
        stored = one.contacts.stored[1]
        assert not any(text in json.dumps(stored) for text in ANN.values())
        assert (answer.status, shown) == (
            201, {**ANN, "phone": MASKED["phone"], "card": stored["card"], "id": 1},
        )  # fmt: skip
        (sent,) = one.contacts.tokens
        assert sent is not None, "the token stays in the request"
        assert sent.startswith("Bearer ey")
        for role, sees in SEEN.items():
            assert (await one.ask("GET", "/contacts/1", role))[1] == {**sees, "id": 1}
            assert (await one.ask("GET", "/contacts", role))[1] == [{**sees, "id": 1}]
        for unknown in ("intern", None):
            assert (await one.ask("GET", "/contacts/1", unknown))[1] == stored
        assert one.keys.asked == 1
        for wrong in ({"aud": "x"}, {"iss": "x"}, {"exp": 1}):
            headers = {"Authorization": f"Bearer {signed('dpo', **wrong)}"}
            assert (await one.ask("GET", "/contacts/1", headers=headers))[1] == stored
        forged = {
            "X-Roles": "dpo",
            "X-Forwarded-User": "dpo",
            "Authorization": "Basic ZHBvOmRwbw==",
        }
        assert (await one.ask("GET", "/contacts/1", headers=forged))[1] == stored


async def test_rules_that_change_count_from_the_next_request_of_a_connection_on(tmp_path):
    async with office(tmp_path) as one:
        one.contacts.tagged = False
        await one.ask("POST", "/contacts", "dpo", json=ANN)
        fields = [f"Authorization: Bearer {signed(role)}" for role in ("dpo", "support")]
        text = (tmp_path / "rules.yaml").read_text("utf-8")
        turned = text.replace("[dpo]", "[--]").replace("[support]", "[dpo]")
        async with RawClient(int(one.instance.proxy.rpartition(":")[2])) as client:

            async def seen() -> list[dict[str, Any]]:
                answers = [await client.ask(get("/contacts/1", field)) for field in fields * 8]
                shown = [{**json.loads(answer.body), "id": 1} for answer in answers]
                assert shown[2:] == shown[:2] * 7
                return shown[:2]

            assert await seen() == [{**ANN, "id": 1}, {**MASKED, "id": 1}]
            (tmp_path / "rules.yaml").write_text(turned.replace("[--]", "[support]"), "utf-8")
            await one.instance.reload()
            assert await seen() == [{**MASKED, "id": 1}, {**ANN, "id": 1}]
            (tmp_path / "rules.yaml").write_text(
                text.replace("audience: contacts", "audience: others"), "utf-8"
            )
            await one.instance.reload()
            assert await seen() == [{**one.contacts.stored[1], "id": 1}] * 2
        assert one.keys.asked == 2, "other tokens are asked for by another rule"


async def test_no_two_views_share_a_cached_answer(tmp_path):
    async with office(tmp_path) as one:
        await one.ask("POST", "/contacts", "dpo", json=ANN)
        tags: dict[str, str] = {}
        for role in ("dpo", "sales", "support", "nobody"):
            answer, _ = await one.ask("GET", "/contacts/1", role)
            assert answer.headers.getall("Vary") == ["Accept", "Authorization"]
            assert "private" in answer.headers["Cache-Control"]
            assert "public" not in answer.headers["Cache-Control"]
            tags[role] = answer.headers["ETag"]
        assert len(set(tags.values())) == 4
        for role, tag in tags.items():
            for other in tags:
                answer, _ = await one.ask(
                    "GET", "/contacts/1", other, headers={"If-None-Match": tag}
                )
                assert answer.status == (304 if role == other else 200)
        for role in ("support", "nobody"):
            answer, shown = await one.ask("GET", "/contacts/1", role)
            expecting = {"If-Match": answer.headers["ETag"]}
            answer, _ = await one.ask("PUT", "/contacts/1", role, json=shown, headers=expecting)
            assert answer.status == 200
            answer, _ = await one.ask("PUT", "/contacts/1", role, json=shown, headers=expecting)
            assert answer.status == 412
        assert (await one.ask("GET", "/contacts/1", "dpo"))[1] == {**ANN, "id": 1}


async def test_the_audit_log_tells_whose_view_it_was(tmp_path):
    async with office(tmp_path) as one:
        await one.ask("POST", "/contacts", "dpo", json=ANN)
        for role in ("dpo", "partner", "support", "nobody"):
            await one.ask("GET", "/contacts/1", role)
    seen = [
        (line["view"], line.get("fields"), line.get("covered"))
        for line in told(tmp_path / "data/audit", "reveal")
    ]
    every = sorted(ANN)
    assert seen == [
        ("dpo", every, None),
        ("sales|partner", ["email", "name"], ["phone"]),
        ("support", None, every),
    ]


@pytest.mark.parametrize("role", ["sales", "support"])
async def test_roles_may_stand_in_the_certificate_of_the_caller(tmp_path, role):
    (tmp_path / "tls").mkdir()
    authority = Authority(tmp_path / "tls")
    server, caller = authority.issue("localhost", "127.0.0.1"), authority.issue("caller.test", role)
    contacts = Contacts()
    text = EXAMPLE.read_text("utf-8")
    before, _, rest = text.partition("    from: jwt\n")
    text = f"{before}    from: certificate\n    roles: san DNS\n\nentities:{rest.partition('entities:')[2]}"
    tls = {"CERTIFICATE": f"{server.certificate}", "KEY": f"{server.key}"}
    bare = settings(tmp_path, **{f"LISTEN__TLS__{name}": one for name, one in tls.items()})
    asked = {"CLIENTS": f"{authority.certificate}", "CLIENTS_AT": "proxy"}
    asking = {**bare, **{f"DOMICILE__LISTEN__TLS__{name}": one for name, one in asked.items()}}
    async with serving(contacts.app()) as upstream:
        (tmp_path / "rules.yaml").write_text(
            text.replace("http://127.0.0.1:3000", upstream), "utf-8"
        )
        with pytest.raises(VaultError) as caught:
            async with running(load_settings(None, bare)):
                pass
        assert caught.value.details[0].source == "listen.tls.clients"
        async with (
            running(load_settings(None, asking)) as instance,
            aiohttp.ClientSession() as session,
        ):
            url = f"https://{instance.proxy}/contacts"
            own = trusting(authority, own=caller)
            async with session.post(url, json=ANN, ssl=own) as answer:
                shown = await answer.json()
            assert shown["name"] == (ANN if role == "sales" else MASKED)["name"]
            async with session.get(f"{url}/1", ssl=own) as answer:
                assert (await answer.json())["phone"] == MASKED["phone"]


def test_the_command_line_tries_and_explains_views(capsys):
    assert main(["rules", "test", str(EXAMPLE)]) == 0
    capsys.readouterr()
    rest = ["--rules", str(EXAMPLE), "GET", "/contacts/1", "--json"]
    assert main(["rules", "explain", *rest]) == 0
    views = json.loads(capsys.readouterr().out)["operation"]["views"]
    assert list(views) == ["dpo", "sales|partner", "support", "none"]
    assert views["support"]["name"] == "mask, as A** *******"
    assert main(["rules", "explain", *rest, "--as", "partner"]) == 0
    views = json.loads(capsys.readouterr().out)["operation"]["views"]
    assert views == {
        "sales|partner": {
            "name": "clear",
            "email": "clear",
            "phone": "mask, as +•• •• ••• 06 05",
            "card": "token",
        }
    }
