import asyncio

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.owner import OwnerTerms, VaultOwner
from proxy.redactor.exchange.owner_protocol import Redact, RulesQuestion, views_of
from proxy.redactor.exchange.runtime import Runtime, VaultRules
from proxy.redactor.message import Request
from proxy.redactor.rules import RuleSet
from proxy.redactor.views import OUTSIDE_VIEW, UNKNOWN_VIEW
from tests.support.exchanges import USUAL, Desk, desk, desk_of, rule_text
from tests.support.fronts import fronted
from tests.support.patience import PATIENCE


async def test_rules_in_force_and_those_of_a_moment_ago_are_known():
    one = await desk()
    async with fronted(one) as pair:
        versions = []
        for path in "abcdefg":
            pair.in_force.runtime = (await desk(f"{{match: POST /{path}, create: p}}")).runtime
            versions.append(pair.in_force.runtime.rules.version)
            assert pair.owner.rules(versions[-1]) is pair.in_force.runtime
        assert pair.owner.rules(versions[-3]) is not None
        assert pair.owner.rules(one.runtime.rules.version) is None


class Memory:
    """Rules that fronts use, in memory; ``fault``: it cannot be read or written."""

    def __init__(self) -> None:
        self.runtimes: dict[str, Runtime] = {}
        self.used: list[str] = []
        self.fault: VaultError | None = None

    async def remember(self, rules: RuleSet) -> None:
        if self.fault is not None:
            raise self.fault
        self.used.append(rules.version)

    async def recall(self, version: str) -> Runtime | None:
        if self.fault is not None:
            raise self.fault
        return self.runtimes.get(version)


async def test_the_next_owner_has_the_rules_that_its_fronts_still_use():
    one, newer = await desk(), await desk("{match: POST /new, create: p}")
    version = one.runtime.rules.version
    async with fronted(one, patience=5) as pair:
        memory = Memory()
        pair.owner._earlier = memory
        assert await pair.link.knows(version)
        assert memory.used == [version], "the next one has to have them"
        pair.in_force = VaultRules(newer.runtime)
        memory.runtimes[version] = one.runtime
        pair.owner = VaultOwner(pair.in_force, OwnerTerms("se", b"secret"), memory)
        await pair.lost()
        call = await pair.send("POST /p", {"name": "Ann"})
        assert call.json["name"] != "Ann"
        assert await pair.rules.check() is None
        assert await pair.owner.knows(newer.runtime.rules.version)
        assert memory.used == [version, newer.runtime.rules.version]
        memory.fault = VaultError(Code.VAULT_DOWN, "owner_unavailable")
        assert await pair.owner.knows(version), "it has them"
        assert not await pair.owner.knows("others")


async def test_every_view_of_a_caller_has_a_number():
    one = await desk(more="views: [{who: [sales], p: clear}]")
    (endpoint,) = one.runtime.rules.endpoints
    assert views_of(endpoint) == [None, UNKNOWN_VIEW, OUTSIDE_VIEW, *endpoint.views]


async def test_a_front_may_send_a_whole_body_of_its_rules_and_no_more():
    async def limited(size: str) -> Desk:
        port = '3000"'
        return await desk_of(rule_text(*USUAL).replace(port, f"{port}, limits: {{body: {size}}}"))

    async with fronted(await limited("6MiB")) as pair:
        most = 16 * 2**20  # inflated
        assert most < pair.owner.longest() < most + 2**23
        channel = await pair.link.channel()
        version = pair.desk.runtime.rules.version
        whole = Request("GET", b"/", (), b"x" * most)
        redacted = await channel.ask(Redact(channel.number(), version, 999, {}, 0, whole, ()))
        assert redacted.fault.code == "internal", "it was read"
        pair.in_force.runtime = (await limited("24MiB")).runtime
        assert await pair.link.knows(pair.in_force.runtime.rules.version)
        longer = Request("GET", b"/", (), b"x" * 24 * 2**20)
        redacted = await channel.ask(Redact(channel.number(), version, 999, {}, 0, longer, ()))
        assert redacted.fault.code == "internal", "of rules that it knows as well"
        channel.connection.send(RulesQuestion(channel.number(), "x" * pair.owner.longest()))
        await asyncio.wait_for(channel.ended.wait(), PATIENCE)
        assert await pair.link.knows(version), "it may come again"
