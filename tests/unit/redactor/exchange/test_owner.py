import asyncio

from proxy.redactor.exchange.matcher import views_of
from proxy.redactor.exchange.wire import Redact, RulesQuestion
from proxy.redactor.message import Request
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
        line = await pair.link.line()
        version = pair.desk.runtime.rules.version
        whole = Request("GET", b"/", (), b"x" * most)
        redacted = await line.ask(Redact(line.number(), version, 999, {}, 0, whole, ()))
        assert redacted.fault.code == "internal", "it was read"
        pair.in_force.runtime = (await limited("24MiB")).runtime
        assert await pair.link.knows(pair.in_force.runtime.rules.version)
        longer = Request("GET", b"/", (), b"x" * 24 * 2**20)
        redacted = await line.ask(Redact(line.number(), version, 999, {}, 0, longer, ()))
        assert redacted.fault.code == "internal", "of rules that it knows as well"
        line.connection.send(RulesQuestion(line.number(), "x" * pair.owner.longest()))
        await asyncio.wait_for(line.ended.wait(), PATIENCE)
        assert await pair.link.knows(version), "it may come again"
