import base64
import hashlib
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.errors import Code, Detail, VaultError
from proxy.net import problem
from proxy.net.problem import STATUS, proxy_status
from proxy.redactor.rules import OnError, Verb
from tests.support.table import table


@table("method", ["GET", "HEAD"])
def test_a_refusal(method):
    sent: list[bytes] = []
    caller: Any = SimpleNamespace(
        endpoint=None,
        head=SimpleNamespace(method=method),
        raw=((b"Accept", b"*/*"),),
        close=False,
        size=0,
    )
    caller.begin, caller.write = lambda _status: None, sent.append
    problem.refuse_request(caller, 403, VaultError(Code.OPERATION_DENIED, "No."))
    (whole,) = sent
    assert whole.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert whole.endswith(b"\r\n\r\n") is (method == "HEAD")
    assert caller.size == len(whole.partition(b"\r\n\r\n")[2])


def test_a_problem_has_the_members_of_the_standard_and_one_entry_a_fault():
    details = (Detail("/email", "is there twice"),)
    assert json.loads(problem.problem(400, Code.AMBIGUOUS_JSON, "Send it once.", details)) == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "code": "ambiguous_json",
        "detail": "Send it once.",
        "errors": [{"title": "ambiguous_json", "source": "/email", "detail": "is there twice"}],
    }


@table("head", [False, True])
@table("close", [False, True])
def test_an_own_answer_says_who_answered_and_how_long_it_is(head, close):
    made = problem.own_answer(502, VaultError(Code.UPSTREAM_BROKEN, "x"), head=head, close=close)
    start, _, body = made.partition(b"\r\n\r\n")
    lines = start.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 502 Bad Gateway"
    assert {
        b"Content-Type: application/problem+json",
        b"Domicile-Answer: proxy",
        b"Cache-Control: no-store",
    } <= set(lines)
    assert (b"Connection: close" in lines) is close
    whole = problem.problem(502, Code.UPSTREAM_BROKEN, "x")
    assert b"Content-Length: %d" % len(whole) in lines
    assert body == (b"" if head else whole)


CHROME = b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@table(
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
    made = problem.own_answer(400, VaultError(Code.MALFORMED_JSON, "x"), accept=accept)
    assert (b"Content-Type: text/html; charset=utf-8\r\n" in made) is page
    assert (b"Content-Type: application/problem+json\r\n" in made) is not page


@table(
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
    page = problem.own_answer(status, error, accept=CHROME).decode()
    main = page.partition("<main>")[2].partition("</main>")[0]
    assert f"<h1>{heading}</h1>" in main
    assert not re.search(r"request|rule|POST|proxy|JSON|token|member|<code>", main)


def test_a_page_says_once_which_field_it_is_about():
    error = VaultError(Code.VALUE_INVALID, "x", (Detail("email", "email: is no mail address"),))
    page = problem.own_answer(422, error, accept=CHROME).decode()
    main, _, below = page.partition("</main>")
    assert "<li>email: is no mail address</li>" in main, "it says what to correct"
    assert "mail address" not in below


def test_a_refusal_has_the_form_in_which_the_application_tells_its_errors():
    details = (
        Detail("/email", "email: is no mail address"),
        Detail("/address/street", "street: is empty"),
        Detail("q", "a part of a text has 3 to 200 characters"),
    )
    error = VaultError(Code.VALUE_INVALID, "A value is …", details)
    form = (
        '{"ok": false, "n": 7, "error": [{"code": "{code}", "text": "{status} {title}: {detail}"}], '
        '"status": "{status}", "fields": "{fields}", "errors": "{errors}", "{code}": "{other}"}'
    )
    told = json.loads(problem.in_own_form(problem.problem_document(422, error), form))
    assert told == {
        "ok": False,
        "n": 7,
        "error": [{"code": "value_invalid", "text": "422 Unprocessable Entity: A value is …"}],
        "status": 422,
        "fields": {
            "email": "is no mail address",
            "address.street": "is empty",
            "q": "a part of a text has 3 to 200 characters",
        },
        "errors": json.loads(problem.problem_document(422, error))["errors"],
        "{code}": "{other}",
    }


def test_a_page_can_be_read_and_does_nothing():
    error = VaultError(
        Code.VALUE_UNFIT, 'A <value> & "more"', (Detail("/a<b>", "is <i>no</i> 'date'"),)
    )
    head, _, body = problem.own_answer(422, error, accept=CHROME).partition(b"\r\n\r\n")
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
    assert problem.own_answer(422, error, accept=CHROME, head=True).partition(b"\r\n\r\n") == (
        head,
        b"\r\n\r\n",
        b"",
    )


def test_what_passes_by_itself_says_when_to_try_again():
    for code in (Code.OVERLOADED, Code.UPSTREAM_BUSY):
        assert b"\r\nRetry-After: 1\r\n" in problem.own_answer(503, VaultError(code, "x"))
    assert b"Retry-After" not in problem.own_answer(503, VaultError(Code.VAULT_DOWN, "x"))


@table(("seconds", "line"), [(None, None), (1, b"Retry-After: 1"), (30, b"Retry-After: 30")])
def test_an_own_answer_says_when_to_come_again_where_that_is_known(seconds, line):
    error = VaultError(Code.UPSTREAM_SUSPENDED, "x")
    error.retry_after = seconds
    lines = problem.own_answer(503, error).partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert [one for one in lines if one.startswith(b"Retry-After")] == (
        [] if line is None else [line]
    )


def test_a_status_without_a_name_has_no_reason():
    assert problem.reason_phrase(599) == ""
    assert problem.own_answer(599, VaultError(Code.INTERNAL, "x")).startswith(b"HTTP/1.1 599 \r\n")


@pytest.mark.parametrize("code", [Code.VAULT_DOWN, Code.BAD_STORE, Code.NOT_WRITABLE])
def test_what_concerns_the_operator_alone_is_logged_and_not_told_to_callers(code, capsys):
    made = problem.own_answer(
        503,
        VaultError(code, "The disk below /var/lib is full.", (Detail("/var/lib/x", "is full"),)),
    )
    assert b"/var" not in made
    assert json.loads(made.partition(b"\r\n\r\n")[2])["code"] == str(code)
    assert "/var/lib is full" in capsys.readouterr().err


def test_every_code_has_a_status_of_a_failure():
    assert set(STATUS) == set(Code)
    assert all(400 <= status <= 599 for status in STATUS.values())


@table(
    ("code", "on_error", "verb", "status"),
    [
        (Code.TOO_LARGE, None, None, 413),
        (Code.TOO_LARGE, OnError(too_large=400), Verb.READ, 400),
        (Code.UNREADABLE_BODY, OnError(unreadable_body=422), Verb.CREATE, 422),
        (Code.AMBIGUOUS_JSON, OnError(ambiguous_json=422), Verb.CREATE, 422),
        (Code.VAULT_DOWN, None, None, 503),
        (Code.VAULT_DOWN, OnError(vault_down_write=500), Verb.UPDATE, 500),
        (Code.VAULT_DOWN, OnError(vault_down_read="500"), Verb.READ, 500),
        (Code.VAULT_DOWN, OnError(), Verb.READ, 503),
        (Code.UPSTREAM_TIMEOUT, OnError(), Verb.READ, 504),
        (Code.UNREADABLE_ANSWER, OnError(), Verb.READ, 502),
        (Code.UNREADABLE_ANSWER, OnError(unreadable_answer="500"), Verb.UPDATE, 500),
    ],
)
def test_the_rule_of_the_operation_comes_before_the_table(code, on_error, verb, status):
    assert proxy_status(VaultError(code, "x"), on_error, verb) == status
