"""Values of earlier versions that a record keeps."""

from collections import Counter

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.vault.body import RecordBody, TokenizedValue, pack, unpack
from proxy.vault.earlier_values import MOST_TEXT, MOST_VALUES, confuses, distinct, keeping


class Keeping:
    """A collection whose rule says so, or not."""

    def __init__(self, keeps: bool = True) -> None:
        self.keeps = keeps
        self.events = Counter[str]()

    def observe(self, event: str, count: int = 1) -> None:
        self.events[event] += count


def value(number: int, text: str, token: str = "") -> TokenizedValue:
    return TokenizedValue(number, text, False, token or f"t{number}", False)


def body(*values: TokenizedValue, **kept: tuple[TokenizedValue, ...]) -> RecordBody:
    return RecordBody({"name": values} if values else {}, 9, earlier=kept)


def as_is(_name: str, one: Value) -> Value:
    return one


def test_what_a_version_replaces_is_kept_once_and_a_token_that_is_live_is_not():
    first, second = value(1, "Ann"), value(2, "Anna")
    kept = keeping(Keeping(), body(second), [body(first, name=(second, value(0, "A")))])
    assert kept.earlier == {"name": (value(0, "A"), first)}
    assert unpack(pack(kept)) == kept
    assert keeping(Keeping(keeps=False), body(second), [body(first)]) == body(second)


def test_a_value_that_the_application_holds_itself_is_not_kept():
    assert keeping(Keeping(), body(), [body(value(1, "Ann", "Ann"))]).earlier == {}


def test_beyond_the_bounds_the_oldest_end_and_are_counted():
    many = tuple(value(number, "x") for number in range(MOST_VALUES + 3))
    collection = Keeping()
    kept = keeping(collection, body(), [body(*reversed(many))])
    assert kept.earlier["name"] == many[3:]
    assert collection.events == {"versions_full": 3}
    long = tuple(value(number, "x" * (MOST_TEXT // 2)) for number in range(3))
    assert keeping(Keeping(), body(), [body(*long)]).earlier["name"] == long[1:]


def test_no_token_is_given_to_another_value_of_the_record():
    tokens = iter(("t1", "t2", "t3"))
    mint = distinct(
        [body(value(1, "Ann"), name=(value(2, "Bo"),))], lambda *_: Value(next(tokens)), as_is
    )
    assert mint("name", Value("Cid"), 3) == Value("t3")
    mint = distinct([body(value(1, "Ann"))], lambda *_: Value("t1"), as_is)
    assert mint("name", Value("Ann"), 3) == Value("t1")
    assert mint("other", Value("Bo"), 3) == Value("t1")
    with pytest.raises(VaultError) as refused:
        mint("name", Value("Bo"), 3)
    assert refused.value.code is Code.SHAPE_FULL


def test_a_shared_token_that_stands_for_a_kept_value_is_told():
    live = body(value(1, "Ann"), name=(value(2, "Bo"),))
    assert confuses(live, body(value(3, "Cid", "t2")), as_is)
    assert not confuses(live, body(value(3, "Bo", "t2")), as_is)
    assert not confuses(live, body(value(3, "Cid")), as_is)
    assert not confuses(None, body(value(3, "Cid", "t2")), as_is)
