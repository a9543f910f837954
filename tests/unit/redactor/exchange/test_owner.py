from proxy.redactor.exchange.owner import views_of
from proxy.redactor.exchange.wire import Fail, Redact
from proxy.redactor.message import Request
from proxy.redactor.views import OUTSIDE_VIEW, UNKNOWN_VIEW
from tests.support.exchanges import desk
from tests.support.fronts import fronted


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


async def test_what_names_no_exchange_or_no_operation_breaks_nothing():
    async with fronted(await desk()) as pair:
        line = await pair.link.line()
        line.connection.send(Fail(1234, True))
        version = pair.desk.runtime.rules.version
        job = Redact(line.number(), version, 999, {}, 0, Request("GET", b"/", (), b""), ())
        redacted = await line.ask(job)
        assert redacted.fault.code == "internal"
        assert await pair.link.knows(version)
