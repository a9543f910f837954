from tests.support.exchanges import USUAL, Desk, desk, desk_of, rule_text
from tests.support.table import table

ANN = {"name": "Ann", "email": "ann@example.se", "phone": "08-123 456 78"}


async def led_to(one: Desk, **tokens: str) -> list[str]:
    """The fields whose tokens the index leads to a record by."""
    people = one.people
    hashes = {people.token_hash(name, text): name for name, text in tokens.items()}
    hits = await one.store.by_tokens(people.table, list(hashes))
    return sorted(name for digest, name in hashes.items() if hits.get(digest))


@table("word", ["current", "keep"])
async def test_the_index_forgets_tokens_that_no_version_has(word: str) -> None:
    one = await desk_of(
        rule_text(*USUAL).replace("    fields:", f"    versions: {word}\n    fields:", 1)
    )
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", {"email": ANN["email"], "phone": "08-765 432 10"})
    sent = {**stored, **call.json}
    old = {"email": stored["email"], "phone": stored["phone"]}
    assert await led_to(one, **old) == ["email", "phone"]  # nothing is decided yet
    await call.answer(200, sent)
    assert sent["email"] == stored["email"]  # of equal values
    assert await led_to(one, **old) == (["email"] if word == "current" else ["email", "phone"])
    assert await led_to(one, email=sent["email"], phone=sent["phone"]) == ["email", "phone"]


async def test_it_keeps_what_the_version_in_doubt_has() -> None:
    one = await desk()
    stored = await one.create(ANN)
    lost = await one.send("PATCH /p/1", {"phone": "08-765 432 10"})
    await lost.exchange.failed(True)
    one.clock.advance(1)
    call = await one.send("PATCH /p/1", {"phone": "08-555 555 55"})
    await call.answer(200, {**stored, **call.json})
    assert await led_to(one, phone=stored["phone"]) == []
    assert await led_to(one, phone=lost.json["phone"]) == ["phone"]
    await (await one.send("DELETE /p/1")).answer(204)
    assert await led_to(one, phone=call.json["phone"]) == []
