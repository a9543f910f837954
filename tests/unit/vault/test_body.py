from proxy.model.schema import Value
from proxy.vault.body import (
    TokenizedBody,
    TokenizedValue,
    changed,
    next_generation,
    pack_tokenized,
    unpack_tokenized,
)


def kept(number: int, text: str, token: str) -> TokenizedValue:
    return TokenizedValue(number, text, False, token, False)


def test_unpack_gives_back_what_pack_was_given() -> None:
    content = TokenizedBody(
        {"email": (kept(1, "ann@example.com", "t1"), kept(2, "ä\u2028\x00", "t2"))}, 3
    )
    assert unpack_tokenized(pack_tokenized(content)) == content


def test_a_kept_value_knows_both_its_faces() -> None:
    stored = TokenizedValue(1, "12.50", True, "98.41", True)
    assert stored.value == Value("12.50", json=True)
    assert stored.stands_for == Value("98.41", json=True)


def test_changed_names_fields_that_differ_in_tokens_or_in_presence() -> None:
    old = {"a": (kept(1, "x", "t1"),), "b": (kept(2, "y", "t2"),)}
    new = {"a": (kept(1, "x", "t1"),), "b": (kept(3, "z", "t3"),), "c": (kept(4, "w", "t4"),)}
    assert changed(old, new) == {"b", "c"}
    assert changed(old, {"a": old["a"]}) == {"b"}


def test_following_is_the_highest_of_all_versions_and_one_for_none() -> None:
    assert next_generation([TokenizedBody({}, 4), TokenizedBody({}, 9)]) == 9
    assert next_generation([]) == 1
