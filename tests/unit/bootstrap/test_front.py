import asyncio
import dataclasses
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.bootstrap.front import certified_names, is_front, is_named, running_front
from proxy.bootstrap.network import OWNER_SOCKET
from proxy.bootstrap.rules import Overrides
from proxy.config import Worker, load_settings
from proxy.errors import Code, VaultError
from proxy.redactor.exchange.owner import OwnerTerms, VaultOwner
from proxy.redactor.exchange.runtime import VaultRules, bind_rules
from proxy.redactor.load import load_rule_set
from tests.support.audit import audit_services
from tests.support.exchanges import desk, rule_text
from tests.support.patience import PATIENCE

ALT = (("DNS", "a.example"), ("IP Address", "10.0.0.1"), ("DNS", "b.example"))
SUBJECT = ((("countryName", "SE"),), (("commonName", "old.example"),))


def test_a_certificate_is_for_its_dns_names_and_without_any_for_its_common_name():
    assert certified_names({"subject": SUBJECT, "subjectAltName": ALT}) == {
        "a.example",
        "b.example",
    }
    assert certified_names({"subject": SUBJECT}) == {"old.example"}
    assert certified_names({"subject": SUBJECT, "subjectAltName": ALT[1:2]}) == {"old.example"}
    assert certified_names({}) == set()


def test_who_uses_the_vault_is_named_and_its_certificate_has_not_ended():
    """A connection may outlive the certificate that it began with: it is looked at again."""
    named = {"subject": SUBJECT, "subjectAltName": ALT}
    good = {**named, "notAfter": "Jan  1 00:00:00 2099 GMT"}
    for shown, names, let_in in (
        (good, {"b.example"}, True),
        (good, {"old.example", "c.example"}, False),
        ({**good, "notAfter": "Jan  1 00:00:00 2019 GMT"}, {"b.example"}, False),
        (named, {"b.example"}, False),
        (None, {"b.example"}, False),
    ):
        transport = SimpleNamespace(get_extra_info={"peercert": shown}.get)
        assert is_named(frozenset(names), cast(asyncio.BaseTransport, transport)) is let_in


def test_a_process_has_a_vault_unless_settings_or_supervisor_say_otherwise():
    settings = load_settings(None, {})
    assert not is_front(settings)
    for role, front in (("front", True), ("owner", False), ("replica", False)):
        worker = Worker(1, Path("/w"), role)
        assert is_front(dataclasses.replace(settings, worker=worker)) is front
    names = ("AUTHORITIES", "CERTIFICATE", "KEY")
    remote = {f"DOMICILE__REMOTE__{name}": "/x" for name in names}
    assert is_front(load_settings(None, {"DOMICILE__REMOTE__VAULT": "vault:1", **remote}))


class AskedOwner(VaultOwner):
    """Tells when somebody asked for rules that it does not have."""

    def __init__(self, in_force: VaultRules, terms: OwnerTerms) -> None:
        super().__init__(in_force, terms)
        self.refused = asyncio.Event()

    async def knows(self, version: str) -> bool:
        known = await super().knows(version)
        if version and not known:
            self.refused.set()
        return known


async def test_one_that_read_newer_files_than_its_owner_waits_until_that_has_them(tmp_path):
    one, path = await desk(), tmp_path / "rules.yaml"
    path.write_text(rule_text("{match: POST /new, create: p}"))
    newer = await bind_rules(load_rule_set(path), one.vault, one.metrics, audit_services())
    in_force = VaultRules(one.runtime)
    owner, loop = AskedOwner(in_force, OwnerTerms("se", b"secret")), asyncio.get_running_loop()
    settings = load_settings(None, {"DOMICILE__LISTEN__PROXY": "127.0.0.1:0"})
    with tempfile.TemporaryDirectory() as folder:  # paths of sockets are short
        worker = Worker(1, Path(folder), "front")
        settings = dataclasses.replace(settings, rules=path, data=tmp_path, worker=worker)
        way = Path(folder) / OWNER_SOCKET
        server = await loop.create_unix_server(lambda: owner.connection(lambda _: True), way)
        owner.servers.append(server)
        served = asyncio.Event()

        async def serve() -> None:
            async with running_front(settings):
                served.set()
                await asyncio.Event().wait()

        front = asyncio.create_task(serve())
        for _ in range(3):
            owner.refused.clear()
            await asyncio.wait_for(owner.refused.wait(), PATIENCE)
        assert not served.is_set(), "it would refuse what callers send"
        in_force.runtime = newer
        await asyncio.wait_for(served.wait(), PATIENCE)
        front.cancel()
        await asyncio.gather(front, return_exceptions=True)
        await owner.drain(0)


async def test_one_that_has_lost_the_rules_of_its_owner_lets_nothing_pass(tmp_path):
    one = await desk()
    owner = VaultOwner(VaultRules(one.runtime), OwnerTerms("se", b"secret"))
    settings = load_settings(None, {"DOMICILE__LISTEN__PROXY": "127.0.0.1:0"})
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(1, Path(folder), "front")
        settings = dataclasses.replace(settings, rules=tmp_path, data=tmp_path, worker=worker)
        way = Path(folder) / OWNER_SOCKET
        owner.servers.append(
            await asyncio.get_running_loop().create_unix_server(
                lambda: owner.connection(lambda _: True), way
            )
        )
        with pytest.raises(VaultError) as fault:
            async with running_front(settings, Overrides({}, "http://127.0.0.1:9")):
                raise AssertionError("it must not start")
        assert fault.value.code is Code.BAD_RULES
        await owner.drain(0)
