"""What each view shows of any values: all of them, masks and nothing clear, or what the application
said; and masks that come back change nothing.
"""

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from tests.support.exchanges import Desk, desk

VIEWS = "views: [{who: [all], p: clear}, {who: [some], p: mask}, {who: [none], p: token}]"
OPERATIONS = (
    "{match: POST /p, create: p}",
    '{match: "GET /p/{id}", read: p}',
    '{match: "PUT /p/{id}", update: p}',
)
FIELDS = ("name: {kind: name}", "note: {kind: text}", 'tags: {kind: text, at: "$.tags[*]"}')

#: Texts that no mask leaves readable, and that stand nowhere else in a document.
SECRET = st.text(st.characters(categories=["Ll", "Lu"]), min_size=4, max_size=12).map(
    lambda text: f"secret{text}"
)
VALUE = SECRET | st.sampled_from(["", None]) | st.integers(10**6, 10**9)
#: What no rule names: a number that a value equals may not leave there, and none of these is one.
OTHER = st.integers(-999, 999) | st.text(st.characters(categories=["Lo"]))
DOCUMENT = st.fixed_dictionaries(
    {"name": VALUE, "tags": st.lists(SECRET, max_size=4, unique_by=len)},
    optional={"note": VALUE, "other": OTHER},
)


async def office() -> Desk:
    return await desk(*OPERATIONS, fields=FIELDS, more=VIEWS)


def clear_texts(document: dict[str, Any]) -> list[str]:
    named = [document.get("name"), document.get("note"), *document["tags"]]
    return [str(value) for value in named if value]


@examples(60)
@given(DOCUMENT, st.sampled_from([None, 0, 3]))
def test_a_clear_view_restores_each_byte_and_others_show_nothing_clear(document, indent):
    body = json.dumps(document, ensure_ascii=False, indent=indent).encode()
    asyncio.run(_shown(document, body))


async def _shown(document: dict[str, Any], body: bytes) -> None:
    one = await office()
    call = await one.send("POST /p", body, view=one.view("all"))
    await call.answer(201, b'{"id": 1}')
    stored = call.sent.body
    shown = {
        role: (await (await one.send("GET /p/1", view=one.view(role))).answer(200, stored)).body
        for role in ("all", "some", "none")
    }
    assert shown["all"] == body
    assert shown["none"] == stored
    masked = json.loads(shown["some"])
    assert set(masked) == set(document)
    assert masked.get("other") == document.get("other")
    text = json.dumps(masked, ensure_ascii=False)
    assert not any(secret[1:] in text for secret in clear_texts(document))
    back = await one.send("PUT /p/1", masked, view=one.view("some"))
    sent, before = json.loads(back.sent.body), json.loads(stored)
    assert sent == before, "nothing was edited"
    await back.answer(200, b'{"id": 1}')
    again = await (await one.send("GET /p/1", view=one.view("all"))).answer(200, stored)
    assert again.body == body
