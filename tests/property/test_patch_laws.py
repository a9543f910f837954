"""A patch does the same to what the application has of a document as to the document itself, as a
library of somebody else applies it.
"""

import asyncio
import json
from typing import Any

import jsonpatch
from hypothesis import event, given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from tests.support.effort import examples
from tests.support.exchanges import desk

FIELDS = (
    "name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "street: {kind: text, at: $.address.street}", 'tags: {kind: text, at: "$.tags[*]"}',
    'marks: {kind: text, at: "$.marks[*].text"}',
)  # fmt: skip
OPERATIONS = (
    "{match: POST /p, create: p}", '{match: "GET /p/{id}", read: p}',
    '{match: "PATCH /p/{id}", update: p, request: {patch: json}}',
)  # fmt: skip
SECRET = st.text('abcXYZ é"\\', min_size=1, max_size=8).map("secret-{}".format)
PLACES = ("/name", "/email", "/address/street", "/address", "/tags", "/tags/-", "/tags/0",
          "/tags/1", "/marks", "/marks/0", "/marks/-", "/marks/0/text", "/vip", "/address/city",
          "/note", "")  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tags": st.lists(SECRET, max_size=3),
    "marks": st.lists(st.fixed_dictionaries({"text": SECRET, "n": st.integers()}), max_size=3),
    "address": st.fixed_dictionaries({"city": st.just("Visby")}, optional={"street": SECRET}),
}
DOCUMENT = st.fixed_dictionaries(
    {"name": SECRET, "email": SECRET, "vip": st.booleans(), **VALUES}
)  # fmt: skip


def value(path: str) -> st.SearchStrategy[Any]:
    if path == "":
        return DOCUMENT
    if path.startswith("/marks/") and not path.endswith("text"):
        return st.fixed_dictionaries({"text": SECRET, "n": st.integers()})
    if path in ("/vip", "/note", "/address/city"):
        return st.booleans() | st.just("Visby")
    return VALUES.get(path[1:], SECRET)


def change(path: str) -> st.SearchStrategy[dict[str, Any]]:
    with_value = st.builds(
        lambda op, given: {"op": op, "path": path, "value": given},
        st.sampled_from(("add", "replace", "test")),
        value(path),
    )
    moved = st.builds(
        lambda op, source: {"op": op, "path": path, "from": source},
        st.sampled_from(("copy", "move")),
        st.sampled_from(PLACES),
    )
    return with_value | st.just({"op": "remove", "path": path}) | moved


PATCH = st.lists(st.sampled_from(PLACES).flatmap(change), min_size=1, max_size=5)


def patched(document: Any, patch: Any) -> Any:
    """The document as an application would have it then; ``None`` where the patch does not fit."""
    try:
        return jsonpatch.apply_patch(document, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError):
        return None


@examples(150)
@given(document=DOCUMENT, patch=PATCH)
def test_a_patch_of_tokens_does_what_the_patch_of_values_does(document, patch):
    async def run() -> None:
        one = await desk(*OPERATIONS, fields=FIELDS)
        stored = await one.create(document)
        clear = {**document, "id": 1}
        try:
            call = await one.send("PATCH /p/1", patch)
        except VaultError as error:
            event(f"refused: {error.code}")
            reasons.append((error.code in (Code.VALUE_UNFIT, Code.AMBIGUOUS_JSON), error.message))
            return
        assert "secret" not in call.sent.body.decode()
        after, expected = patched(stored, call.json), patched(clear, patch)
        assert (after is None) == (expected is None)
        if after is None:
            event("unfit")
            await call.answer(409)
        elif not isinstance(after, dict):
            event("no object left")
        else:
            event("applied")
            assert "secret" not in json.dumps(after)
            await call.answer(204)
            assert await one.shown(after) == expected

    reasons: list[tuple[bool, str]] = []
    asyncio.run(run())
    assert all(fits and "secret" not in message for fits, message in reasons)
