from proxy.net.http1.fields import HEADER_KINDS, HeaderKind, connection_options
from tests.support.table import table


@table(
    ("name", "kind"),
    [
        (b"X", HeaderKind.OTHER),
        (b"cOnnection", HeaderKind.CONNECTION),
        (b"TE", HeaderKind.TE),
        (b"Keep-Alive", HeaderKind.DROPPED),
        (b"Domicile-Answer", HeaderKind.OWN),
        (b"domicile_x", HeaderKind.OWN),
        (b"Domicile", HeaderKind.OTHER),
        (b"!#$%&'*+-.^_`|~09Az", HeaderKind.OTHER),
        (b"", HeaderKind.NONE),
        (b"X ", HeaderKind.NONE),
        (b" X", HeaderKind.NONE),
        (b"Connection\t", HeaderKind.NONE),
        (b"Domicile-\xe9", HeaderKind.NONE),
        (b"X" * 5000, HeaderKind.OTHER),
    ],
)
def test_what_a_name_means_whenever_it_is_asked(name, kind):
    assert [HEADER_KINDS[name], HEADER_KINDS[name], HEADER_KINDS[name]] == [kind] * 3


def test_host_and_length_concern_no_connection():
    assert [HEADER_KINDS[name] for name in (b"HOST", b"content-Length")] == [
        HeaderKind.HOST,
        HeaderKind.LENGTH,
    ]
    assert HeaderKind.OTHER < HeaderKind.HOST < HeaderKind.LENGTH < HeaderKind.CONNECTION


def test_what_is_remembered_is_bounded():
    for number in range(10_000):
        assert HEADER_KINDS[b"X-%d" % number] is HeaderKind.OTHER
    assert len(HEADER_KINDS) <= 4096
    assert HEADER_KINDS[b"Y" * 65] is HeaderKind.OTHER
    assert b"Y" * 65 not in HEADER_KINDS


@table(
    ("values", "expected"),
    [
        ([], set()),
        ([b"keep-alive"], set()),
        ([b"close", b"Keep-Alive,,"], set()),
        ([b"X, close", b"\ty "], {b"x", b"y"}),
    ],
)
def test_names_that_connection_fields_list(values, expected):
    assert connection_options(values) == expected
