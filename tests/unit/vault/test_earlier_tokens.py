"""A token root is rotated: what the application holds resolves for ever, equal values keep equal
tokens, and new values get tokens that the older root does not make.
"""

from typing import Any

import pytest

from proxy.crypto.keyset import Keyset
from proxy.model.schema import Field, Schema, Storage, Value
from proxy.tokenization import SHAPES
from proxy.tokenization.digits import digits_of
from proxy.tokenization.normalize import normalize
from proxy.vault import earlier_tokens
from proxy.vault.collection import TableSpec
from proxy.vault.earlier_tokens import number_spellings
from proxy.vault.proxied.deletes import deleted
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import stage_creates, stage_deletes
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, token

#: name -> (kind, shape, options)
SPECS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "name": ("name", "opaque", {}),
    "uuid": ("uuid", "uuid", {}),
    "email": ("email", "email", {"same": True}),
    "phone": ("phone", "numeric", {"same": True}),
    "born": ("date", "date", {"same": True}),
}
ANN = {
    "name": "Ann",
    "uuid": "0b0e7c3e-0b0e-4c3e-8b0e-7c3e0b0e7c3e",
    "email": "ann@example.com",
    "phone": "+46701234567",
    "born": "1980-02-03",
}
SAME = ("email", "phone", "born")


def recipe() -> TableSpec:
    fields = tuple(
        Field(name, storage=Storage.ENCRYPTED, kind=kind) for name, (kind, _, _) in SPECS.items()
    )
    shapes = {name: SHAPES[shape](options) for name, (_, shape, options) in SPECS.items()}
    return TableSpec(Schema("person", fields), shapes, None, addressed=True)


async def born(bench: Bench, ident: str, **values: str) -> dict[str, str]:
    """A record of the application; its tokens."""
    (made,) = await stage_creates(bench.people, [draft(**values)], [None])
    await bind(bench.people, [(made, ident)])
    return {name: token(made, name) for name in values}


async def restored(bench: Bench, ident: str | None, shown: dict[str, str]) -> dict[str, str | None]:
    found = (
        await reveal_objects(bench.people, [AnswerObject(ident, tuple(shown.items()))])
    ).values[0]
    return {
        name: None if value is None else value.text
        for name, value in zip(shown, found, strict=True)
    }


async def sought(bench: Bench, name: str, text: str) -> str:
    """The token by which the application is searched."""
    if bench.people.context.keyset.older_tokens:
        await bench.people.recall([(name, [Value(text)])])
    return bench.people.same_token(name, Value(text)).text


@table("rotations", [1, 2])
async def test_tokens_that_were_made_before_resolve_and_equal_values_keep_equal_tokens(
    rotations: int,
) -> None:
    bench = await make_bench(recipe=recipe())
    keyset = bench.people.context.keyset
    before = await born(bench, "1", **ANN)
    for _ in range(rotations):
        keyset.adopt(keyset.with_token_root())
    assert len(keyset.token_roots) == rotations + 1
    assert await restored(bench, "1", before) == ANN
    lone = {name: before[name] for name in ("name", "uuid", "phone")}
    assert await restored(bench, None, lone) == {name: ANN[name] for name in lone}
    again = await born(bench, "2", **ANN)
    assert {name: again[name] for name in SAME} == {name: before[name] for name in SAME}
    for name in SAME:
        assert await sought(bench, name, ANN[name]) == before[name]
    assert await restored(bench, "2", again) == ANN
    other = await make_bench(bench.store, keyset, recipe())  # another process
    assert await restored(other, "1", before) == ANN
    assert await restored(other, "2", again) == ANN


async def test_tokens_under_a_root_to_come_resolve_and_make_no_others_until_it_has_come() -> None:
    bench = await make_bench(recipe=recipe())
    keyset = bench.people.context.keyset
    plain = {name: await sought(bench, name, text) for name, text in ANN.items() if name in SAME}
    following = keyset.with_token_root()
    keyset.prepare(following)
    assert keyset.older_tokens
    assert {name: await sought(bench, name, ANN[name]) for name in SAME} == plain
    keyset.adopt(following)
    ahead = await born(bench, "1", **ANN)  # what another owner of the store makes already
    keyset._turn(keyset._roots._replace(token=keyset._roots.older_tokens[0], older_tokens=()))
    keyset.prepare(following)  # as one that has yet to follow
    assert await restored(bench, "1", ahead) == ANN
    born_later = await born(bench, "2", **ANN)
    assert {name: born_later[name] for name in SAME} == {name: ahead[name] for name in SAME}
    keyset.prepare(None)
    assert not keyset.older_tokens


async def test_a_value_that_nobody_has_gets_a_token_that_the_older_root_does_not_make() -> None:
    bench = await make_bench(recipe=recipe())
    keyset = bench.people.context.keyset
    thief = await make_bench(keyset=Keyset("test", *_inside(keyset)), recipe=recipe())
    await born(bench, "1", **ANN)
    keyset.adopt(keyset.with_token_root())
    fresh = {"email": "bo@example.com", "phone": "+46709876543"}
    made = await born(bench, "2", **fresh)
    for name, value in fresh.items():
        assert thief.people.same_token(name, Value(value)).text != made[name]
        assert await sought(bench, name, value) == made[name]
    assert await restored(bench, "2", made) == fresh
    third = await born(bench, "3", **fresh)
    assert third == made
    rid = (await bench.people.by_key(["2"]))["2"].rid
    carrying = (await born(bench, "4", name="Cy"))["name"]
    assert thief.people.identify("name", carrying) is None
    assert bench.people.identify("name", carrying) not in (None, rid)


async def test_a_value_whose_records_are_gone_gets_a_token_under_the_root_of_now() -> None:
    bench = await make_bench(recipe=recipe())
    keyset = bench.people.context.keyset
    before = await born(bench, "1", email=ANN["email"])
    keyset.adopt(keyset.with_token_root())
    assert await sought(bench, "email", ANN["email"]) == before["email"]
    held = await stage_deletes(bench.people, ["1"])
    await deleted(bench.people, held)
    after = await born(bench, "2", email=ANN["email"])
    assert after != before
    assert await sought(bench, "email", ANN["email"]) == after["email"]


def _inside(keyset: Keyset) -> Any:
    roots, data, primary = keyset._inside()
    return data, primary, roots


async def test_numbers_of_the_index_and_mail_addresses_alone_are_known_in_another_spelling() -> (
    None
):
    people = (await make_bench()).people
    assert people.respells == {"email", "phone"}
    for name, text in (
        ("name", "Ann"),
        ("email", "ann@example.com"),
        ("phone", "+46 70 123 45 67"),
    ):
        token = people.tokenizers[name].mint(Value(text), 7, 1).text
        changed = token.upper() if name == "email" else f" {token[:3]} {token[3:]}"
        known = [] if name == "name" else [(changed, token)]
        assert list(people.respelled(name, [changed, text], [token])) == known


async def test_many_numbers_are_compared_by_their_last_digits_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    people, read = (await make_bench()).people, list[str]()

    def counted(kind: str, text: str, region: str) -> str:
        read.append(text)
        return normalize(kind, text, region)

    monkeypatch.setattr(earlier_tokens, "normalize", counted)
    token, national = "+46701234567", "070-123 45 67"
    texts = [*(f"+4670{number:07}" for number in range(1000)), national]
    assert list(people.respelled("phone", texts, [token])) == [(national, token)]
    assert len(read) < 10, "only those that end alike are read as telephone numbers"
    assert not list(people.respelled("phone", texts, [f"+4671{n:07}" for n in range(100)]))


@table("region", ["se", "us", "ar", "it", ""])
@table(
    "text",
    ["0701-23 45 67", "+39 06 1234 567", "0 11 15 2345-6789", "(0)8/123 456;78", "00460001 23 4#"],
)
def test_no_manner_of_writing_a_number_changes_its_last_digits(text: str, region: str) -> None:
    assert {one[-3:] for one in number_spellings(text, "phone", region)} == {digits_of(text)[-3:]}
