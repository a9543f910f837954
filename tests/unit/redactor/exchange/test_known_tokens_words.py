import pytest

from proxy.redactor.exchange import known_tokens
from proxy.redactor.exchange.known_tokens import Words
from proxy.redactor.message import Request

TOKEN = "Ab+3 d@e.example"


def request(target: bytes = b"/", field: bytes = b"", body: bytes = b"") -> Request:
    return Request("POST", target, ((b"X-Y", field),), body)


@pytest.mark.parametrize(
    "said",
    [
        request(b"/p/Ab+3%20d%40e.example?x"),
        request(b"/?q=%41b%2B3+d@e.example"),
        request(field=b"x=Ab+3 d@e.example; y"),
        request(body=b'{"x": "Ab+3 d@e.example"}'),
        request(body=b'{"x": "\\u0041b\\u002b3 d\\u0040e.example"}'),
        request(body=b"x=1&y=Ab%2b3+d%40e.example"),
    ],
)
def test_a_token_that_the_caller_wrote_is_its_own_word(said: Request) -> None:
    assert others(Words(said), TOKEN, "another") == ["another"]


def test_escaped_quotes_backslashes_and_slashes() -> None:
    assert others(Words(request(body=b'"a\\/b\\"c\\\\d"')), 'a/b"c\\d') == []


def test_what_there_is_no_time_for_counts_as_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_tokens, "_BYTES", 1000)
    words = Words(request(body=b"x" * 100))
    assert others(words, "a", "b") == ["a", "b"]
    assert not words.full
    assert others(words, "a", "b", "c") == ["a", "b"]
    assert words.full


def test_parts_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_tokens, "_PART_BYTES", 500)
    words = Words(request(body=b"x" * 100))
    assert list(words.others(["a", "b", "x", "c"])) == [["a", "b"], ["c"]]


def others(words: Words, *tokens: str) -> list[str]:
    return [one for part in words.others(tokens) for one in part]
