import asyncio

import pytest
from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.next_version import (
    Cover,
    Drafted,
    ProxiedDraft,
    adopt,
    apart_from,
    draft_new,
    draft_next,
)
from tests.support.table import table


def mint(name: str, value: Value, number: int) -> Value:
    return Value(f"{name}-{number}", value.json)


def new(fields: dict[str, tuple[Value, ...]]) -> Drafted:
    mints = {
        name: lambda value, rid, number, name=name: mint(name, value, number) for name in fields
    }
    return asyncio.run(draft_new(ProxiedDraft(fields), mints, 1))


def live() -> RecordBody:
    return new({"name": (Value("Ann"),), "tags": (Value("a"), Value("b"))}).content


def tokens(values: tuple[TokenizedValue, ...]) -> list[str]:
    return [kept.token for kept in values]


def test_a_new_record_gets_a_token_for_each_value() -> None:
    content = live()
    assert tokens(content.values["tags"]) == ["tags-2", "tags-3"]
    assert content.following == 4


def test_a_field_of_a_new_record_without_a_value_is_given_but_not_kept() -> None:
    drafted = new({"name": (), "tags": (Value("a"),)})
    assert drafted.tokens["name"] == ()
    assert set(drafted.content.values) == {"tags"}
    assert drafted.content.following == 2


def test_an_unchanged_value_keeps_its_token_and_a_changed_one_gets_another() -> None:
    drafted = asyncio.run(
        draft_next(
            ProxiedDraft({"name": (Value("Ann"),), "tags": (Value("b"), Value("c"))}),
            live(),
            4,
            mint,
        )
    )
    assert tokens(drafted.tokens["name"]) == ["name-1"]
    assert tokens(drafted.tokens["tags"]) == ["tags-3", "tags-4"]
    assert drafted.own == frozenset()


def test_the_same_value_twice_continues_only_one_stored_value() -> None:
    drafted = asyncio.run(
        draft_next(ProxiedDraft({"tags": (Value("a"), Value("a"))}), live(), 4, mint)
    )
    assert tokens(drafted.tokens["tags"]) == ["tags-2", "tags-4"]


def test_an_own_token_that_comes_back_keeps_the_value_it_stands_for() -> None:
    drafted = asyncio.run(draft_next(ProxiedDraft({"name": (Value("name-1"),)}), live(), 4, mint))
    assert drafted.content.values["name"][0].text == "Ann"
    assert drafted.own == {"name"}


def test_a_token_of_another_field_is_a_value_like_any_other() -> None:
    drafted = asyncio.run(draft_next(ProxiedDraft({"name": (Value("tags-2"),)}), live(), 4, mint))
    assert drafted.content.values["name"][0] == TokenizedValue(4, "tags-2", False, "name-4", False)


def test_a_number_is_not_the_text_of_it() -> None:
    before = new({"n": (Value("1", json=True),)}).content
    assert tokens(
        asyncio.run(draft_next(ProxiedDraft({"n": (Value("1"),)}), before, 2, mint)).tokens["n"]
    ) == ["n-2"]


def test_absent_fields_stay_unless_the_draft_replaces_the_whole_record() -> None:
    patch = ProxiedDraft({"name": (Value("Bo"),)})
    assert set(asyncio.run(draft_next(patch, live(), 4, mint)).content.values) == {"name", "tags"}
    assert set(
        asyncio.run(draft_next(replace(patch, absent_erased=True), live(), 4, mint)).content.values
    ) == {"name"}
    kept = replace(patch, absent_erased=True, keep=frozenset({"tags"}))
    assert set(asyncio.run(draft_next(kept, live(), 4, mint)).content.values) == {"name", "tags"}


def test_no_values_erase_the_field() -> None:
    assert (
        "name"
        not in asyncio.run(draft_next(ProxiedDraft({"name": ()}), live(), 4, mint)).content.values
    )


def test_a_small_shape_is_asked_again_when_it_repeats_a_present_token() -> None:
    answers = iter(["name-1", "name-1", "other"])
    drafted = asyncio.run(
        draft_next(
            ProxiedDraft({"name": (Value("Bo"),)}), live(), 4, lambda *_: Value(next(answers))
        )
    )
    assert tokens(drafted.tokens["name"]) == ["other"]


def test_tokens_of_versions_in_doubt_are_not_given_again_where_there_are_others() -> None:
    answers = iter(["name-1", "tags-2", *["name-1"] * 100])
    minting = apart_from([live()], lambda *_: Value(next(answers)))
    assert minting("name", Value("Bo"), 4) == Value("tags-2")  # of another field
    assert minting("name", Value("Bo"), 5) == Value("name-1")  # there is no other


def test_adopt_takes_only_the_named_fields_and_drops_empty_ones() -> None:
    content = adopt(
        live(), {"name": (TokenizedValue(9, "Bo", False, "t9", False),), "tags": ()}, 10
    )
    assert set(content.values) == {"name"}
    assert content.values["name"][0].text == "Bo"
    assert content.following == 10


def test_a_stored_field_that_is_declared_no_more_outlives_a_whole_replacement() -> None:
    draft = ProxiedDraft({"name": (Value("Bo"),)}, absent_erased=True, declared=frozenset({"name"}))
    assert tokens(asyncio.run(draft_next(draft, live(), 4, mint)).content.values["tags"]) == [
        "tags-2",
        "tags-3",
    ]
    same = ProxiedDraft({"name": (Value("Ann"),)}, absent_erased=True, declared=frozenset({"name"}))
    before = live()
    assert asyncio.run(draft_next(same, before, 4, mint)).content is before
    assert (
        "tags"
        not in asyncio.run(
            draft_next(replace(draft, declared=None), live(), 4, mint)
        ).content.values
    )


class Mask:
    """Shows the first sign."""

    character = "*"

    def of(self, text: str) -> str:
        return text[:1] + "*" * (len(text) - 1)


MASKS = Cover(frozenset({"name", "tags"}), {"name": Mask(), "tags": Mask()})


def masked(**fields: str | list[str]) -> Drafted:
    draft = {
        name: tuple(Value(text) for text in ([given] if isinstance(given, str) else given))
        for name, given in fields.items()
    }
    return asyncio.run(draft_next(ProxiedDraft(draft, cover=MASKS), live(), 10, mint))


def test_the_mask_of_a_stored_value_is_that_value() -> None:
    drafted = masked(name="A**", tags=["a", "b"])
    assert drafted.content == live()
    assert (set(drafted.masked), set(drafted.own)) == ({"name"}, set())
    drafted = masked(name="Bo", tags=["a", "new"])
    assert [kept.text for kept in drafted.tokens["tags"]] == ["a", "new"]
    assert drafted.masked == set()


@table("name", ["B**", "A*", "*", "A**n"])
def test_another_mask_is_refused_and_so_is_one_of_a_new_record(name: str) -> None:
    with pytest.raises(VaultError) as caught:
        masked(name=name)
    assert caught.value.code is Code.VALUE_UNFIT
    assert "Ann" not in caught.value.message
    draft = ProxiedDraft({"name": (Value(name),)}, cover=MASKS)
    with pytest.raises(VaultError):
        asyncio.run(draft_new(draft, {}, 1))


def test_of_values_with_one_mask_all_come_back_in_their_order() -> None:
    before = new({"tags": (Value("ab"), Value("ac"), Value("d"))}).content
    draft = ProxiedDraft({"tags": (Value("a*"), Value("a*"), Value("e"))}, cover=MASKS)
    drafted = asyncio.run(draft_next(draft, before, 10, mint))
    assert [kept.text for kept in drafted.tokens["tags"]] == ["ab", "ac", "e"]
    assert tokens(drafted.tokens["tags"])[:2] == tokens(before.values["tags"])[:2]
    draft = ProxiedDraft({"tags": (Value("a*"), Value("d"))}, cover=MASKS)
    with pytest.raises(VaultError) as caught:
        asyncio.run(draft_next(draft, before, 10, mint))
    assert "nobody can tell" in caught.value.message


class Bare:
    """Shows signs as they are."""

    character = "*"

    def of(self, text: str) -> str:
        return "".join("*" if sign.isalnum() else sign for sign in text)


@table("guess", ["Ann", "Bob"])
def test_of_a_covered_field_an_equal_value_is_as_new_as_any_other(guess: str) -> None:
    draft = ProxiedDraft({"name": (Value(guess),)}, cover=Cover(frozenset({"name"})))
    drafted = asyncio.run(draft_next(draft, live(), 4, mint))
    assert tokens(drafted.tokens["name"]) == ["name-4"]
    appended = ProxiedDraft(
        {"tags": (Value("b"),)}, appended=frozenset({"tags"}), cover=Cover(frozenset({"tags"}))
    )
    drafted = asyncio.run(draft_next(appended, live(), 4, mint))
    assert len(set(tokens(drafted.tokens["tags"]))) == 3


def test_a_covered_field_keeps_what_is_stored_by_its_token_or_by_what_is_shown_of_it() -> None:
    covered = Cover(frozenset({"name", "tags"}))
    draft = ProxiedDraft({"name": (Value("name-1"),), "tags": (Value("tags-3"),)}, cover=covered)
    drafted = asyncio.run(draft_next(draft, live(), 4, mint))
    assert [kept.text for values in drafted.tokens.values() for kept in values] == ["Ann", "b"]
    assert drafted.own == {"name", "tags"}
    before = new({"name": (Value("-- ("),)}).content  # a mask leaves it whole
    bare = Cover(frozenset({"name"}), {"name": Bare()}, frozenset({"name"}))
    draft = ProxiedDraft({"name": (Value("-- ("),)}, cover=bare)
    drafted = asyncio.run(draft_next(draft, before, 4, mint))
    assert (drafted.content, drafted.masked) == (before, frozenset())


@table("sent", ["Ann", "Bob"])
def test_a_covered_field_whose_token_tells_takes_no_new_value(sent: str) -> None:
    cover = Cover(frozenset({"name"}), {}, frozenset({"name"}))
    draft = ProxiedDraft({"name": (Value(sent),)}, cover=cover)
    for drafting in (draft_next(draft, live(), 4, mint), draft_new(draft, {}, 1)):
        with pytest.raises(VaultError) as caught:
            asyncio.run(drafting)
        assert caught.value.code is Code.FIELD_HIDDEN
        assert sent not in caught.value.message
    kept = ProxiedDraft({"name": (Value("name-1"),)}, cover=cover)
    assert asyncio.run(draft_next(kept, live(), 4, mint)).tokens["name"][0].text == "Ann"
    cleared = ProxiedDraft({"name": ()}, cover=cover)
    assert "name" not in asyncio.run(draft_next(cleared, live(), 4, mint)).content.values
