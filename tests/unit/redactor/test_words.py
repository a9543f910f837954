"""Words of a rule are read, told and compared by their fields alone."""

from dataclasses import fields

from proxy.redactor.words import (
    Absent,
    OtherKinds,
    RequestWords,
    ResponseWords,
    pointless_words,
    ranked_words,
    read_words,
    words_in,
)
from tests.support.table import table


def test_words_are_read_by_their_names_and_others_are_left():
    said = {"absent": "erase", "files": None, "object": ()}
    assert read_words(RequestWords, said) == {"absent": Absent.ERASE}
    assert RequestWords(**read_words(RequestWords, {})) == RequestWords()


@table(
    "verb, pointless",
    [
        ("update", []),
        ("create", ["absent", "own_mask"]),
        ("read", ["absent", "nulls", "empty", "own_token", "own_mask"]),
    ],
)
def test_a_word_means_nothing_to_some_verbs(verb, pointless):
    assert pointless_words(RequestWords, verb) == pointless


@table("kind", [RequestWords, ResponseWords])
def test_every_word_is_told(kind):
    assert [*words_in(kind, kind())] == [one.name for one in fields(kind)]
    assert words_in(kind, kind()).keys() == ranked_words(kind, kind()).keys()


def test_what_protects_more_has_the_higher_rank():
    passing = RequestWords(other_kinds=OtherKinds.PASS)
    assert ranked_words(RequestWords, passing)["other_kinds"] == ("pass", 0)
    assert ranked_words(RequestWords, RequestWords())["other_kinds"] == ("refuse", 1)
    assert ranked_words(ResponseWords, ResponseWords(complete=True))["complete"] == ("true", 1)
    assert ranked_words(ResponseWords, ResponseWords())["scan"] == ("none", None)
