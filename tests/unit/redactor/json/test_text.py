import json
import time

from proxy.redactor.json.text import depth_fits, unescaped
from tests.support.table import table

DOCUMENTS = {
    "1": 0,
    '"[{"': 0,
    "[]": 1,
    "[[],[[]],{}]": 3,
    '{"a":{"b":[1,{"c":2}]}}': 4,
    '["[", "]", "{\\"[", "\\\\", ["}"]]': 2,
    r'["\\\"[", {"\\":"]]]]"}]': 2,
    r'{"\"":["\\\\"], "x":"\n[\u005b"}': 2,
}


@table("text", DOCUMENTS)
@table("padding", ["", " " * 5000, ',"' + r"\"\n\\" * 2000 + '[[["', ',"a\\n' + "b" * 5000 + '"'])
def test_levels_are_counted_outside_of_strings_in_small_and_large_documents(text, padding):
    body = f"[[{text}{padding}]]".encode()
    json.loads(body)
    assert depth_fits(body, DOCUMENTS[text] + 2)
    assert not depth_fits(body, DOCUMENTS[text] + 1)


def test_a_limit_is_reached_in_time_however_deep_the_document_is():
    body = b"[" * 500_000 + b"]" * 500_000
    started = time.process_time()
    assert not depth_fits(body, 64)
    # of a slow machine; what is not in proportion takes hours
    assert time.process_time() - started < 20


def test_texts_without_their_escapes_and_where_each_ended():
    assert unescaped(rb"a\u003cb\n\\\u00e9x") == (
        b"a<b\n\\?x",
        [(7, 5), (10, 6), (12, 7), (18, 12)],
    )
    assert unescaped(b"plain") == (b"plain", [])
