import pytest

from proxy.redactor.exchange.runtime import InForce, carries
from tests.support.exchanges import Desk, desk

ANN = "Ann@Wexlomere.example"


async def searched(one: Desk) -> bytes:
    """What the application is asked for when somebody searches for Ann."""
    return (await one.send(f"GET /p?email={ANN}")).sent.target


async def referred(one: Desk, address: bytes, name: bytes = b"Referer") -> bytes:
    found = await InForce(one.runtime).referred("app", ((b"Accept", b"*/*"), (name, address)))
    assert found[0] == (b"Accept", b"*/*")
    return found[1][1]


@pytest.mark.parametrize("before", [b"https://crm.example:8443", b"http://app", b"//app", b""])
@pytest.mark.parametrize("name", [b"Referer", b"referer", b"X-Original-URL", b"X-Forwarded-Uri"])
async def test_the_page_that_a_search_led_to_is_told_with_tokens(before, name):
    one = await desk()
    wanted = await searched(one)
    assert await referred(one, before + b"/p?page=2&email=" + ANN.encode() + b"#top", name) == (
        before + wanted.replace(b"?", b"?page=2&")
    )


async def test_tokens_in_it_stay():
    one = await desk()
    token = (await one.create({"email": ANN}))["email"].encode()
    assert await referred(one, b"http://app/p?email=" + token) == b"http://app/p?email=" + token


@pytest.mark.parametrize(
    "address",
    [b"http://app/p/17?email=x@y.example", b"http://app/elsewhere?email=x@y.example", b"about:blank?", b"?", b"http://app?email=1"],
)  # fmt: skip
async def test_what_no_search_named_stays_as_it_came(address):
    assert await referred(await desk(), address) == address


async def test_fields_without_an_address_are_not_touched():
    one = await desk()
    headers = ((b"Referer", b"http://app/p"), (b"X-Question", b"/p?email=x@y.example"))
    assert not carries(headers)
    assert await one.runtime.referred("app", headers) is headers


@pytest.mark.parametrize("path", [b"/p/%78", b"/p"])  # two readings; no token of that shape
async def test_what_cannot_be_swapped_goes_without_its_query(path):
    one = await desk(
        '{match: GET /p, read: p, query: {n: {field: nr}}, response: {each: "$[*]", id: $.id}}',
        '{match: "GET /p/{id}", read: p}',
        '{match: "GET /p/x", read: p}',
        fields=("nr: {kind: number, token: {shape: numeric, same: true}}",),
    )
    assert await referred(one, b"http://app" + path + b"?n=nobody") == b"http://app" + path
