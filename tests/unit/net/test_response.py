import asyncio
import base64
import hashlib
import json
import re
from typing import Any

import pytest

from proxy.errors import Code, Detail, VaultError
from proxy.net import response
from proxy.net.http1.head import Framing, parse_response_head
from proxy.net.reply import BufferedReply


class Caller:
    """What the writer uses of an incoming request."""

    def __init__(self, minor: int = 1, close: bool = False, method: str = "GET") -> None:
        self.minor, self.close, self.size, self.status = minor, close, 0, 0
        self.began = self.gone = False
        self.sent = b""
        self.sample = None
        self.takes = [0]  #: what the caller has not taken yet, before and after each wait
        self.head = type("Head", (), {"method": method})
        self.raw = ((b"Accept", b"*/*"),)

    def begin(self, status: int) -> None:
        self.began, self.status = True, status

    def write(self, data: bytes) -> None:
        self.sent += data

    @property
    def unsent(self) -> int:
        return self.takes[0]

    async def drained(self, _: float) -> None:
        self.takes = self.takes[1:] or [0]
        if self.takes[0]:
            raise TimeoutError


def reply(head: bytes, framing: Framing, *pieces: bytes, done: bool = True) -> BufferedReply:
    data = head + b"\r\n\r\n"
    feed: Any = None
    made = BufferedReply(parse_response_head(data, len(head)), framing, feed, 1 << 20)
    for piece in pieces:
        made.feed(piece)
    if done:
        made.finish()
    return made


@pytest.mark.parametrize(
    ("head", "framing", "minor", "close", "sent"),
    [
        (b"HTTP/1.1 200 OK\r\nA:1", Framing.LENGTH, 1, False, b"HTTP/1.1 200 OK\r\nA:1\r\n\r\n"),
        (
            b"HTTP/1.0 200 OK\r\nA:1",
            Framing.LENGTH,
            1,
            True,
            b"HTTP/1.1 200 OK\r\nA:1\r\nConnection: close\r\n\r\n",
        ),
        (
            b"HTTP/1.1 200 ",
            Framing.LENGTH,
            0,
            False,
            b"HTTP/1.1 200 \r\nConnection: keep-alive\r\n\r\n",
        ),
        (b"HTTP/1.1 200 ", Framing.CLOSE, 1, False, b"HTTP/1.1 200 \r\nConnection: close\r\n\r\n"),
        (
            b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked",
            Framing.CHUNKED,
            0,
            False,
            b"HTTP/1.1 200 \r\nConnection: close\r\n\r\n",
        ),
        (
            b"HTTP/1.1 204 \r\nTransfer-Encoding: chunked",
            Framing.NONE,
            1,
            False,
            b"HTTP/1.1 204 \r\n\r\n",
        ),
        (
            b"HTTP/1.1 200 \r\nConnection: close\r\nA: 1",
            Framing.CLOSE,
            1,
            False,
            b"HTTP/1.1 200 \r\nA: 1\r\nConnection: close\r\n\r\n",
        ),
    ],
)
def test_the_head_for_this_caller(head, framing, minor, close, sent):
    caller: Any = Caller(minor, close)
    assert response.begin_response(caller, reply(head, framing)) == sent
    assert caller.began
    assert caller.close == (b"close" in sent)


async def test_a_stream_in_chunks_ends_with_its_trailers_but_no_framing_among_them():
    made = reply(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", Framing.CHUNKED, b"abc", done=False
    )
    trailers = (
        (b"X-Sum", b"1"),
        (b"Transfer-Encoding", b"x"),
        (b"Content-Length", b"9"),
        (b"Host", b"h"),
    )
    caller: Any = Caller()
    asyncio.get_running_loop().call_soon(made.finish, trailers)
    await response.stream(caller, made, 1)
    assert caller.sent.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n")
    assert caller.size == 3


async def test_a_stream_to_nobody_stops():
    made = reply(b"HTTP/1.1 200 OK", Framing.CLOSE, b"abc", done=False)
    caller: Any = Caller()
    caller.gone = True
    await response.stream(caller, made, 1)
    assert caller.size == 0


def test_interim_answers_are_for_callers_that_know_them():
    for minor, sent in ((1, b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"), (0, b"")):
        caller: Any = Caller(minor)
        response.interim(caller, 103, b"Hints", ((b"Link", b"x"), (b"Connection", b"close")))
        assert caller.sent == sent


def test_nothing_interim_follows_the_final_head():
    caller: Any = Caller()
    caller.began = True
    response.interim(caller, 103, b"Hints", ())
    assert caller.sent == b""


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_refusal(method):
    caller: Any = Caller(method=method)
    response.refuse_request(caller, 403, VaultError(Code.OPERATION_DENIED, "No."))
    assert caller.sent.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert caller.sent.endswith(b"\r\n\r\n") is (method == "HEAD")
    assert caller.size == len(caller.sent.partition(b"\r\n\r\n")[2])


def test_whole_and_restored_answers():
    made = reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", Framing.CHUNKED)
    caller: Any = Caller()
    response.whole_response(caller, made, b"abc")
    assert caller.sent.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    for minor, close, field in (
        (1, False, b""),
        (1, True, b"Connection: close\r\n"),
        (0, False, b"Connection: keep-alive\r\n"),
    ):
        caller = Caller(minor, close)
        response.restored(caller, (made.head.status, made.head.reason), [b"A: 1\r\n"], b"abc")
        assert caller.sent == b"HTTP/1.1 200 OK\r\nA: 1\r\n" + field + b"\r\nabc"


@pytest.mark.parametrize("takes", [[0], [1000], [200_000, 0], [9_000_000, 8_000_000, 7_000_000, 0]])
async def test_a_caller_that_takes_its_answer_is_waited_for(takes):
    caller = Caller()
    caller.takes = list(takes)
    await response.wait_taken(caller, 60.0)  # type: ignore[arg-type]  # what the writer uses of it
    assert caller.unsent in (0, 1000)


@pytest.mark.parametrize("takes", [[200_000, 200_000, 0], [9_000_000, 8_000_000, 7_999_999, 0]])
async def test_a_caller_that_takes_next_to_nothing_is_not(takes):
    caller = Caller()
    caller.takes = list(takes)
    with pytest.raises(TimeoutError):
        await response.wait_taken(caller, 60.0)  # type: ignore[arg-type]  # what the writer uses of it


def test_a_head_that_is_written_again_is_as_it_was_unless_the_connection_ends():
    made = reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3", Framing.LENGTH)
    callers: list[Any] = [Caller(), Caller(), Caller(close=True), Caller(minor=0)]
    one, again, *_ = callers
    sent = [response.begin_response(caller, made) for caller in callers]
    assert sent[0] == sent[1] == b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
    assert b"Connection: close" in sent[2]
    assert b"Connection: keep-alive" in sent[3]
    assert one.began
    assert again.began


# ---- own


def test_a_problem_has_the_members_of_the_standard_and_one_entry_a_fault():
    details = (Detail("/email", "is there twice"),)
    assert json.loads(response.problem(400, Code.AMBIGUOUS_JSON, "Send it once.", details)) == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "code": "ambiguous_json",
        "detail": "Send it once.",
        "errors": [{"title": "ambiguous_json", "source": "/email", "detail": "is there twice"}],
    }


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("close", [False, True])
def test_an_own_answer_says_who_answered_and_how_long_it_is(head, close):
    made = response.own_answer(502, VaultError(Code.UPSTREAM_BROKEN, "x"), head=head, close=close)
    start, _, body = made.partition(b"\r\n\r\n")
    lines = start.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 502 Bad Gateway"
    assert {
        b"Content-Type: application/problem+json",
        b"Domicile-Answer: proxy",
        b"Cache-Control: no-store",
    } <= set(lines)
    assert (b"Connection: close" in lines) is close
    whole = response.problem(502, Code.UPSTREAM_BROKEN, "x")
    assert b"Content-Length: %d" % len(whole) in lines
    assert body == (b"" if head else whole)


CHROME = b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        (CHROME, True),
        (b"text/html, application/xhtml+xml, */*", True),
        (b"TEXT/HTML;level=1", True),
        (b"application/xhtml+xml", True),
        (b"text/html, application/json", False),
        (b"text/html;q=0.5, application/problem+json;q=0.4", True),
        (b"text/html;q=0.1, */*", False),
        (b"text/html;q=0", False),
        (b"*/*", False),
        (b"text/*", False),
        (b"application/json, text/plain, */*", False),
        (b"", False),
        (None, False),
    ],
)
def test_who_asks_for_html_gets_a_page_and_everybody_else_a_document(accept, page):
    made = response.own_answer(400, VaultError(Code.MALFORMED_JSON, "x"), accept=accept)
    assert (b"Content-Type: text/html; charset=utf-8\r\n" in made) is page
    assert (b"Content-Type: application/problem+json\r\n" in made) is not page


@pytest.mark.parametrize(
    ("status", "code", "heading"),
    [
        (422, Code.VALUE_ELSEWHERE, "Please check what you entered"),
        (422, Code.SEARCH_REFUSED, "This search is not possible"),
        (422, Code.TOO_BROAD, "This search is not possible"),
        (409, Code.CONFLICT, "Please try again"),
        (503, Code.UPSTREAM_UNREACHABLE, "Please try again"),
        (400, Code.MALFORMED_JSON, "This did not work"),
    ],
)
def test_a_page_says_in_a_persons_words_what_can_be_done(status, code, heading):
    error = VaultError(code, "The request matches POST /p, and …")
    page = response.own_answer(status, error, accept=CHROME).decode()
    main = page.partition("<main>")[2].partition("</main>")[0]
    assert f"<h1>{heading}</h1>" in main
    assert not re.search(r"request|rule|POST|proxy|JSON|token|member|<code>", main)


def test_a_page_can_be_read_and_does_nothing():
    error = VaultError(
        Code.VALUE_UNFIT, 'A <value> & "more"', (Detail("/a<b>", "is <i>no</i> 'date'"),)
    )
    head, _, body = response.own_answer(422, error, accept=CHROME).partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert fields[b"Content-Length"] == b"%d" % len(body)
    assert (fields[b"Cache-Control"], fields[b"Domicile-Answer"]) == (b"no-store", b"proxy")
    assert fields[b"X-Content-Type-Options"] == b"nosniff"
    text = body.decode()
    main, _, below = text.partition("</main>")
    assert "Nothing was saved." in main
    assert "value_unfit" not in main, "what developers read stands below"
    assert "422 <code>value_unfit</code>" in below
    assert "A &lt;value&gt; &amp; &quot;more&quot;" in text
    assert "<li><code>/a&lt;b&gt;</code>: is &lt;i&gt;no&lt;/i&gt; &#x27;date&#x27;</li>" in text
    assert not re.search(r"<script|<link|<img|<a |style=| on[a-z]+=|url\(|@import", text)
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    allowed = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    assert fields[b"Content-Security-Policy"].decode() == policy
    assert response.own_answer(422, error, accept=CHROME, head=True).partition(b"\r\n\r\n") == (
        head,
        b"\r\n\r\n",
        b"",
    )


def test_what_passes_by_itself_says_when_to_try_again():
    for code in (Code.OVERLOADED, Code.UPSTREAM_BUSY):
        assert b"\r\nRetry-After: 1\r\n" in response.own_answer(503, VaultError(code, "x"))
    assert b"Retry-After" not in response.own_answer(503, VaultError(Code.VAULT_DOWN, "x"))


@pytest.mark.parametrize(
    ("seconds", "line"), [(None, None), (1, b"Retry-After: 1"), (30, b"Retry-After: 30")]
)
def test_an_own_answer_says_when_to_come_again_where_that_is_known(seconds, line):
    error = VaultError(Code.UPSTREAM_SUSPENDED, "x")
    error.retry_after = seconds
    lines = response.own_answer(503, error).partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert [one for one in lines if one.startswith(b"Retry-After")] == (
        [] if line is None else [line]
    )


def test_a_status_without_a_name_has_no_reason():
    assert response.reason(599) == ""
    assert response.own_answer(599, VaultError(Code.INTERNAL, "x")).startswith(b"HTTP/1.1 599 \r\n")


@pytest.mark.parametrize("code", [Code.VAULT_DOWN, Code.BAD_STORE, Code.NOT_WRITABLE])
def test_what_concerns_the_operator_alone_is_logged_and_not_told_to_callers(code, capsys):
    made = response.own_answer(
        503,
        VaultError(code, "The disk below /var/lib is full.", (Detail("/var/lib/x", "is full"),)),
    )
    assert b"/var" not in made
    assert json.loads(made.partition(b"\r\n\r\n")[2])["code"] == str(code)
    assert "/var/lib is full" in capsys.readouterr().err
