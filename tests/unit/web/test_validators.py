import pytest

from proxy.web.validators import matching, told, unmatched


@pytest.mark.parametrize(
    ("given", "weak"),
    [(b'"a"', b'W/"a"'), (b'W/"a"', b'W/"a"'), (b' "" ', b'W/""'), (b'"1,\xe5"', b'W/"1,\xe5"'), (b"a", None), (b"", None)],
)  # fmt: skip
def test_a_restored_answer_has_a_weak_tag(given, weak):
    assert told(given) == weak


@pytest.mark.parametrize(
    ("given", "own"),
    [
        (b'W/"a"', b'"a", W/"a"'),
        (b'"b", W/"a","c"', b'"b", "a", W/"a", "c"'),
        (b'W/"a,b"', b'"a,b", W/"a,b"'),
        (b'"b"', b'"b"'),
        (b"*", b"*"),
        (b"W/a", b"W/a"),
    ],
)
def test_a_tag_that_an_update_expects_is_the_applications_again(given, own):
    assert matching(given) == own


@pytest.mark.parametrize(
    ("given", "left"),
    [(b'W/"a"', None), (b'W/"a" , "b", W/"c"', b'"b"'), (b'"a", "b"', b'"a", "b"'), (b"*", b"*"), (b"W/a", b"W/a")],
)
def test_nobody_asks_whether_tokens_have_changed(given, left):
    assert unmatched(given) == left
