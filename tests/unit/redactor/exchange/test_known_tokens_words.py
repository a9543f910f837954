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
    assert Words(said).without([TOKEN, "another"]) == ["another"]


def test_escaped_quotes_backslashes_and_slashes() -> None:
    assert Words(request(body=b'"a\\/b\\"c\\\\d"')).without(['a/b"c\\d']) == []


def test_what_would_take_too_long_counts_as_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_tokens, "_MOST", 2)
    assert Words(request()).without(["a", "b", "c"]) == ["a", "b"]
    monkeypatch.setattr(known_tokens, "_BYTES", 500)
    assert Words(request(body=b"x" * 100)).without(["a", "b"]) == ["a"]
