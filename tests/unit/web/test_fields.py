import pytest

from proxy.web.fields import Kind, named, names, request_names


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b"X", Kind.PLAIN),
        (b"cOnnection", Kind.CONNECTION),
        (b"TE", Kind.TE),
        (b"Keep-Alive", Kind.DROPPED),
        (b"Domicile-Answer", Kind.OWN),
        (b"domicile_x", Kind.OWN),
        (b"Domicile", Kind.PLAIN),
        (b"!#$%&'*+-.^_`|~09Az", Kind.PLAIN),
        (b"", Kind.NONE),
        (b"X ", Kind.NONE),
        (b" X", Kind.NONE),
        (b"Connection\t", Kind.NONE),
        (b"Domicile-\xe9", Kind.NONE),
        (b"X" * 5000, Kind.PLAIN),
    ],
)
def test_what_a_name_means_whenever_it_is_asked(name, kind):
    assert [names[name], names[name], request_names[name]] == [kind] * 3


def test_only_requests_ask_for_host_and_length():
    assert [request_names[name] for name in (b"HOST", b"content-Length")] == [Kind.HOST, Kind.LENGTH]
    assert [names[name] for name in (b"HOST", b"content-Length")] == [Kind.PLAIN, Kind.PLAIN]


def test_what_is_remembered_is_bounded():
    for number in range(10_000):
        assert names[b"X-%d" % number] is Kind.PLAIN
    assert len(names) <= 4096
    assert names[b"Y" * 65] is Kind.PLAIN
    assert b"Y" * 65 not in names


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], set()),
        ([b"keep-alive"], set()),
        ([b"close", b"Keep-Alive,,"], set()),
        ([b"X, close", b"\ty "], {b"x", b"y"}),
    ],
)
def test_names_that_connection_fields_list(values, expected):
    assert named(values) == expected
