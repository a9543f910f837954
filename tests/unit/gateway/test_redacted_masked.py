import pytest

from proxy.errors import Code, VaultError
from proxy.gateway.redacted import masked
from proxy.redactor.message import Request, Response
from proxy.redactor.rules import Match, Verb
from tests.support.gateway import VALUE, Exchange, endpoint, operation

ASKED = Request("GET", b"/people/1", (), b"")


def match(verb: Verb) -> Match:
    return Match(operation(endpoint("http://app"), verb), {})


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.READ])
def test_whoever_is_outside_writes_nothing(verb):
    inner = Exchange()
    with pytest.raises(VaultError) as caught:
        masked(match(verb), inner)
    assert (caught.value.code, inner.calls) == (Code.OUTSIDE_COUNTRY, [])


async def test_what_is_read_stays_as_the_application_keeps_it():
    inner = Exchange(strict=True)
    made = masked(match(Verb.READ), inner)
    assert await made.outgoing(ASKED) == ASKED
    assert not made.wants(200, ())
    await made.settled(200, ())
    made.pass_unread(200, ())
    assert inner.names == ["outgoing", "settled"]


async def test_an_answer_that_comes_all_the_same_is_not_restored():
    inner = Exchange()
    answer = Response(200, (), b"tok_9f8e7d6c")
    assert await masked(match(Verb.READ), inner).incoming(answer) is answer
    assert inner.names == ["settled"]


async def test_nobody_outside_searches_by_a_value():
    inner = Exchange()
    with pytest.raises(VaultError) as caught:
        await masked(match(Verb.READ), inner).outgoing(Request("POST", b"/people", (), VALUE))
    assert (caught.value.code, inner.names) == (Code.OUTSIDE_COUNTRY, ["outgoing", "failed"])


async def test_a_failure_is_handed_on():
    inner = Exchange()
    await masked(match(Verb.READ), inner).failed(True)
    assert inner.calls == [("failed", True)]


def test_the_times_of_its_steps_are_those_of_the_exchange():
    inner = Exchange()
    assert masked(match(Verb.READ), inner).timing is inner.timing
