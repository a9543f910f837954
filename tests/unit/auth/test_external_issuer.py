import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.auth.clients import Grant
from proxy.auth.external_issuer import (
    BELIEVED,
    PAUSE,
    ByIntrospection,
    ByKeys,
    Expected,
    External,
    unreachable,
)
from proxy.errors import Code, VaultError
from tests.support.auth import Office, office
from tests.support.issuer import AUDIENCE, ISSUER, claims, document, made, public, token
from tests.support.patience import PATIENCE

KEY, NEXT = made("ES256"), made("ES256")
ALL = Expected(ISSUER, lambda named: AUDIENCE in named)
OPAQUE = ALL._replace(issuer=None, optional=frozenset({"aud", "iss"}))


class There:
    """The issuer: publishes keys, answers about tokens, or is away."""

    def __init__(self) -> None:
        self.body = document(public(KEY, kid="one"))
        self.asked = 0
        self.away = False

    async def keys(self) -> bytes:
        return await self.about("")

    async def about(self, _token: str) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise unreachable("it cannot be reached")
        return self.body

    def says(self, **said: Any) -> None:
        self.body = json.dumps({"active": True, **said}).encode()


@pytest.fixture
async def here() -> AsyncIterator[Office]:
    async with office() as made:
        yield made


@pytest.fixture
def there() -> There:
    return There()


def by_keys(here: Office, there: There, expected: Expected = ALL) -> External:
    return External(ByKeys(there.keys, here.clock), here.service.clients, expected, here.clock)


def by_asking(here: Office, there: There, expected: Expected = OPAQUE, **bound: int) -> External:
    asking = ByIntrospection(there.about, here.clock)
    return External(asking, here.service.clients, expected, here.clock, **bound)


async def register(here: Office, name: str = "crm-there", **more: Any) -> str:
    made = await here.service.clients.create(name, "default", Grant(**more), external=name)
    assert made.secret == ""
    return made.client.id


async def refused(external: External, text: str) -> None:
    with pytest.raises(VaultError) as caught:
        await external.principal(text)
    assert caught.value.code is Code.UNAUTHORIZED


async def test_a_token_stands_for_the_client_that_is_registered_with_its_policies(here, there):
    ident = await register(here, policies=("support",))
    found = await by_keys(here, there).principal(token(KEY, claims(here.clock())))
    assert (found.client, found.environment, found.admin, found.policies) == (
        ident,
        "default",
        False,
        ("support",),
    )


async def test_what_a_token_says_of_itself_gives_no_rights(here, there):
    await register(here)
    said = claims(here.clock(), scope="admin default", admin=True, policies=[], roles=["admin"])
    assert not (await by_keys(here, there).principal(token(KEY, said))).admin


@pytest.mark.parametrize(
    "more",
    [
        {"iss": "https://elsewhere.example"}, {"iss": None}, {"aud": "https://elsewhere.example"}, {"aud": None}, {"aud": []}, {"aud": 5},
        {"exp": None}, {"exp": "soon"}, {"exp": True}, {"exp": 5}, {"exp": 1e300}, {"nbf": 2e9}, {"nbf": "x"}, {"client_id": "nobody"},
        {"client_id": None}, {"client_id": ["crm-there", "b"]}, {"client_id": 5}, {"scope": "openid"}, {"scope": None}, {"scope": 5},
        {"scope": "other"},
    ],
)  # fmt: skip
async def test_a_claim_that_does_not_fit_refuses_the_token(here, there, more):
    await register(here)
    await refused(by_keys(here, there), token(KEY, claims(here.clock(), **more)))


async def test_claims_may_have_other_names_and_audiences_be_lists(here, there):
    await register(here)
    expected = ALL._replace(environment="tenant", client="azp")
    said = claims(
        here.clock(),
        client_id=None,
        scope=None,
        azp="crm-there",
        tenant="default",
        aud=["x", AUDIENCE],
    )
    assert (
        await by_keys(here, there, expected).principal(token(KEY, said))
    ).environment == "default"


async def test_without_a_claim_for_it_the_environment_is_that_of_the_registration(here, there):
    await register(here)
    expected = ALL._replace(environment=None)
    assert (
        await by_keys(here, there, expected).principal(token(KEY, claims(here.clock(), scope=None)))
    ).environment == "default"


async def test_an_id_is_registered_once_in_an_environment_and_ends_with_its_client(here, there):
    ident = await register(here)
    with pytest.raises(VaultError) as caught:
        await register(here)
    assert (caught.value.code, caught.value.details[0].source) == (Code.CONFLICT, "/external_id")
    with pytest.raises(VaultError) as caught:
        await here.service.clients.renew(ident)
    assert caught.value.code is Code.CONFLICT
    external, text = by_keys(here, there), token(KEY, claims(here.clock()))
    await external.principal(text)
    await here.service.clients.remove(ident)
    assert external.remembered(text) is None
    await refused(external, text)
    again = await register(here)
    external, text = by_keys(here, there), token(KEY, claims(here.clock(), jti="2"))
    assert (await external.principal(text)).client == again
    await here.service.clients.disable(again)
    await refused(external, text)


async def test_a_token_ends_with_its_time_also_where_it_is_remembered(here, there):
    await register(here)
    external, text = by_asking(here, there), "opaque"
    there.says(client_id="crm-there", scope="default", exp=here.clock() // 1000 + 10)
    await external.principal(text)
    here.clock.advance(9_999)
    assert external.remembered(text) is not None
    here.clock.advance(1)
    assert external.remembered(text) is None
    await refused(external, text)


async def test_answers_are_believed_for_a_minute_and_no_longer(here, there):
    await register(here)
    external = by_asking(here, there)
    there.says(client_id="crm-there", scope="default")
    await external.principal("opaque")
    there.says(active=False)
    here.clock.advance(BELIEVED - 1)
    assert (await external.principal("opaque")).environment == "default"
    assert there.asked == 1
    here.clock.advance(1)
    await refused(external, "opaque")
    await refused(external, "opaque")
    assert there.asked == 2


async def test_keys_are_believed_for_a_minute_and_a_key_that_is_gone_counts_no_longer(here, there):
    await register(here)
    external = by_keys(here, there)
    text = token(KEY, claims(here.clock()))
    await external.principal(text)
    there.body = document(public(NEXT, kid="two"))
    here.clock.advance(BELIEVED - 1)
    assert (await external.principal(text)).environment == "default"
    here.clock.advance(1)
    await refused(external, text)


@pytest.mark.parametrize("leap", [3_600_000, 86_400_000])
async def test_a_clock_that_went_forward_and_back_makes_nobody_believe_for_longer(
    here, there, leap
):
    await register(here)
    by_words, text = by_asking(here, there), token(KEY, claims(here.clock() + leap))
    signatures = by_keys(here, there)
    here.clock.advance(leap)
    await signatures.principal(text)
    there.says(client_id="crm-there", scope="default")
    await by_words.principal("opaque")
    here.clock.advance(-leap)
    there.says(active=False)
    await refused(by_words, "opaque")
    there.body = document(public(NEXT, kid="two"))
    await refused(signatures, text)
    fresh = token(NEXT, claims(here.clock()), kid="two")
    assert (await signatures.principal(fresh)).environment == "default"


async def test_nor_refused_for_longer(here, there):
    await register(here)
    external = by_asking(here, there)
    there.says(active=False)
    await refused(external, "opaque")
    there.away = True
    signatures = by_keys(here, there)
    text = token(KEY, claims(here.clock() - 86_400_000))
    with pytest.raises(VaultError) as caught:
        await signatures.principal(text)
    assert caught.value.code is Code.ISSUER_UNREACHABLE
    here.clock.advance(-86_400_000)
    there.away = False
    there.says(client_id="crm-there", scope="default")
    assert (await external.principal("opaque")).environment == "default"
    there.body = document(public(KEY, kid="one"))
    assert (await signatures.principal(text)).environment == "default"


async def test_a_key_that_is_new_counts_at_once_and_strangers_cannot_make_us_ask_again_and_again(
    here, there
):
    await register(here)
    external = by_keys(here, there)
    await external.principal(token(KEY, claims(here.clock())))
    here.clock.advance(PAUSE)
    there.body = document(public(KEY, kid="one"), public(NEXT, kid="two"))
    assert (
        await external.principal(token(NEXT, claims(here.clock()), kid="two"))
    ).environment == "default"
    assert there.asked == 2
    for number in range(20):
        await refused(
            external, token(NEXT, claims(here.clock(), jti=number), kid=f"made up {number}")
        )
    assert there.asked == 2


async def test_who_names_a_key_that_is_not_there_makes_nobody_else_wait_for_the_issuer(here):
    await register(here)
    slow, asked = asyncio.Event(), asyncio.Event()

    class Slow(There):
        async def keys(self) -> bytes:
            if self.asked:
                asked.set()
                await slow.wait()
            return await super().keys()

    external = by_keys(here, Slow())
    await external.principal(token(KEY, claims(here.clock())))
    here.clock.advance(PAUSE)
    made_up = token(NEXT, claims(here.clock()), kid="made up")
    stranger = asyncio.create_task(refused(external, made_up))
    await asked.wait()
    another = token(KEY, claims(here.clock(), jti="2"))
    async with asyncio.timeout(PATIENCE):
        assert (await external.principal(another)).environment == "default"
    slow.set()
    await stranger


async def test_an_issuer_that_is_away_makes_no_token_valid(here, there):
    await register(here)
    external, other = by_keys(here, there), by_asking(here, there)
    text = token(KEY, claims(here.clock()))
    await external.principal(text)
    there.away = True
    for away, shown in ((external, token(KEY, claims(here.clock(), jti="2"))), (other, "opaque")):
        here.clock.advance(BELIEVED)
        with pytest.raises(VaultError) as caught:
            await away.principal(shown)
        assert (caught.value.code, caught.value.retry_after) == (Code.ISSUER_UNREACHABLE, 1)
    with pytest.raises(VaultError):
        await external.principal(text)
    there.away = False
    here.clock.advance(1_000)
    assert (await external.principal(text)).environment == "default"


async def test_an_issuer_that_is_away_is_not_asked_by_every_request(here, there):
    external = by_keys(here, there)
    there.away = True
    for number in range(20):
        with pytest.raises(VaultError):
            await external.principal(token(KEY, claims(here.clock(), jti=number)))
    assert there.asked == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"no", b'{"keys": 1'])
async def test_nonsense_of_the_issuer_makes_no_token_valid(here, there, body):
    await register(here)
    there.body = body
    for external in (by_keys(here, there), by_asking(here, there)):
        with pytest.raises(VaultError) as caught:
            await external.principal(token(KEY, claims(here.clock())))
        assert caught.value.code is Code.ISSUER_UNREACHABLE


@pytest.mark.parametrize("active", [None, False, "true", 1])
async def test_only_what_the_issuer_calls_active_is(here, there, active):
    await register(here)
    there.says(active=active, client_id="crm-there", scope="default")
    await refused(by_asking(here, there), "opaque")


async def test_requests_that_come_together_ask_once(here, there):
    await register(here)
    external = by_asking(here, there)
    there.says(client_id="crm-there", scope="default")
    found = await asyncio.gather(*(external.principal("opaque") for _ in range(20)))
    assert (len(set(found)), there.asked) == (1, 1)


async def test_memory_is_bounded_whatever_tokens_are_made_up(here, there):
    there.says(active=False)
    external = by_asking(here, there, most_cached=10)
    for number in range(40):
        await refused(external, f"made up {number}")
    assert len(external) == 10


async def test_who_makes_up_tokens_drives_out_none_that_is_valid(here, there):
    await register(here)
    external = by_asking(here, there, most_cached=10)
    there.says(client_id="crm-there", scope="default")
    valid = await external.principal("valid")
    there.says(active=False)
    for number in range(40):
        await refused(external, f"made up {number}")
    asked = there.asked
    assert (await external.principal("valid"), there.asked) == (valid, asked)


async def test_of_a_token_that_is_not_valid_little_is_kept_however_long_it_is(here, there):
    there.says(active=False)
    external = by_asking(here, there)
    tracemalloc.start()
    for number in range(200):
        await refused(external, f"{number:04}" * 2000)
    gc.collect()  # refusals hold the frames they came through until then
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(external), there.asked) == (200, 200)
    assert kept < 800_000  # of the 1.6 million bytes that were sent


@pytest.mark.parametrize("missing", ["aud", "iss"])
async def test_an_answer_without_audience_or_issuer_counts_only_where_the_settings_say_so(
    here, there, missing
):
    await register(here)
    said = {"client_id": "crm-there", "scope": "default", "iss": ISSUER, "aud": AUDIENCE}
    there.says(**{name: value for name, value in said.items() if name != missing})
    await refused(by_asking(here, there, ALL), "opaque")
    lenient = ALL._replace(optional=frozenset({missing}))
    assert (await by_asking(here, there, lenient).principal("opaque")).environment == "default"
    others: list[Any] = ["https://elsewhere.example", None, [], 5]
    for other in others:
        there.says(**{**said, missing: other})
        await refused(by_asking(here, there, lenient), "opaque")


async def test_keys_never_make_a_claim_optional(here, there):
    await register(here)
    lenient = ALL._replace(optional=frozenset({"aud"}))
    await refused(by_keys(here, there, lenient), token(KEY, claims(here.clock(), aud=None)))
