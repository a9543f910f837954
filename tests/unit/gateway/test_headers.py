from proxy.gateway.headers import (
    answer_lines,
    codings_readable,
    declared_length,
    interim_fields,
    private,
    readable,
    request_head,
    restored_head,
    unchanged_lines,
)
from proxy.net.http1.head import ResponseHead
from proxy.net.reply import UpstreamAddress
from proxy.redactor.message import Request
from tests.support.table import table

ADDRESS = UpstreamAddress("http", "app.test", 8080)


@table(
    ("accepted", "asked"),
    [
        (b"gzip, br", b"gzip, br"),
        (b"GZIP;q=0.5 ,identity", b"GZIP;q=0.5 ,identity"),
        (b"gzip, compress, *", b"gzip"),
        (b"*", b"identity"),
        (b"dcb", b"identity"),
        (b"", b"identity"),
    ],
)
def test_only_codings_that_can_be_undone_are_asked_for(accepted, asked):
    assert readable(accepted) == asked


@table(
    ("values", "yes"),
    [
        (None, True),
        (b"gzip", True),
        (b"br, ZSTD", True),
        (b"gzip, aes128gcm", False),
        (b"x", False),
        (b"", True),
        (b"gzip, ", True),
    ],
)
def test_which_answers_can_be_undone(values, yes):
    assert codings_readable(values) is yes


@table(
    ("given", "private_"),
    [
        (b"public, max-age=60", b"private, max-age=60"),
        (b"s-maxage=5", b"private"),
        (b"no-store", b"no-store"),
        (b"No-Store, private", b"No-Store"),
        (b"no-store=0", b"private, no-store=0"),
        (b'private="set-cookie", max-age=1', b"private, max-age=1"),
        (b'private="set-cookie, x-y" ,max-age=1', b"private, max-age=1"),
        (b'no-cache="a, \\"b", , PUBLIC', b'private, no-cache="a, \\"b"'),
        (b'max-age=1, x="y, no-store', b"private, max-age=1"),
        (b"max-age=60;public, no-store", b"private"),
        (b"", b"private"),
    ],
)
def test_no_shared_cache_keeps_a_restored_answer(given, private_):
    assert private(given) == private_


@table(
    "name",
    [
        *(
            b"X-Accel-Expires",
            b"Surrogate-Control",
            b"surrogate-key",
            b"CDN-Cache-Control",
            b"Cloudflare-CDN-Cache-Control",
        ),
        *(
            b"Vercel-CDN-Cache-Control",
            b"Netlify-CDN-Cache-Control",
            b"Netlify-Cache-ID",
            b"Akamai-Cache-Control",
        ),
        *(
            b"Fastly-Surrogate-Control",
            b"Edge-Control",
            b"Edge-Cache-Tag",
            b"X-Edge-Cache-TTL",
            b"X-Cache-TTL",
            b"X-Varnish-TTL",
        ),
        *(
            b"X-LiteSpeed-Cache-Control",
            b"X-LiteSpeed-Tag",
            b"X-LSADC-Cache-Control",
            b"X-Cacheable",
            b"X-Cache-Tags",
            b"Cache-Tag",
        ),
        *(
            b"X-Magento-Cache-Control",
            b"Cache_Control",
            b"X_Accel_Expires",
            b"Pragma",
            b"New-Vendor-Cache-Control",
        ),
    ],
)
def test_no_field_by_which_a_cache_may_keep_it_stays_with_a_restored_answer(name):
    assert answer_lines(((name, b"max-age=60"),), None, None) == [b"Cache-Control: private\r\n"]
    assert interim_fields(((name, b"max-age=60"), (b"Link", b"</x>"))) == ((b"Link", b"</x>"),)


@table(
    "name",
    [b"X-Cache", b"CF-Cache-Status", b"Cache-Status", b"X-Cache-Hits", b"X-LiteSpeed-Purge", b"X-Accel-Buffering", b"Age",
     b"Vary", b"X-Token-Expires", b"TTL", b"Clear-Site-Data", b"X-Nocache", b"X-Knowledge-Control"],
)  # fmt: skip
def test_what_only_tells_of_caches_stays(name):
    assert answer_lines(((name, b"x"),), None, None) == [
        name + b": x\r\n",
        b"Cache-Control: private\r\n",
    ]


def test_what_expires_has_expired():
    given = ((b"Expires", b"Thu, 31 Dec 2099 23:59:59 GMT"), (b"Cache-Control", b"max-age=5"))
    assert answer_lines(given, None, None) == [
        b"Expires: 0\r\n",
        b"Cache-Control: private, max-age=5\r\n",
    ]


def test_the_fields_of_an_answer_that_the_caller_has():
    given = (
        (b"Content-Type", b"a/b"),
        (b"content-location", b"/x"),
        (b"ETAG", b"y"),
        (b"Vary", b"z"),
        (b"Content-Length", b"3"),
    )
    lines = [
        b"content-location: /x\r\n",
        b'ETAG: "t"\r\n',
        b"Vary: z\r\n",
        b"Cache-Control: private\r\n",
    ]
    assert unchanged_lines(given, b'"t"') == lines


@table("method", ["GET", "HEAD", "get", "PUT", "DELETE"])
def test_the_application_is_not_asked_whether_its_tokens_have_changed(method):
    conditions = (
        (b"If-None-Match", b'"a"'),
        (b"If-Modified-Since", b"x"),
        (b"if-none-match", b"*"),
        (b"If-Match", b'"b"'),
    )
    head = request_head(
        Request(method, b"/", ((b"Host", b"h"), *conditions), b""), None, ADDRESS,
        body=False, target=False,
    )  # fmt: skip
    kept = conditions[2:] if method.upper() in ("GET", "HEAD") else conditions
    assert head.split(b"\r\n")[2:-2] == [b"%b: %b" % field for field in kept]


def test_the_head_of_a_rewritten_request():
    given = (
        (b"A", b"1"),
        (b"transfer-ENCODING", b"chunked"),
        (b"HOST", b"h"),
        (b"Content-Encoding", b"br"),
        (b"accept-Encoding", b"br, x"),
        (b"Trailer", b"x"),
        (b"a", b"2"),
    )
    kept = b"PUT /p?q HTTP/1.1\r\nA: 1\r\nHOST: h\r\naccept-Encoding: br\r\na: 2\r\n"
    request = Request("PUT", b"/p?q", given, b"abc")
    assert (
        request_head(request, 3, ADDRESS, body=True, target=False)
        == kept + b"Content-Length: 3\r\n\r\n"
    )
    assert request_head(request, None, ADDRESS, body=False, target=False) == kept + b"\r\n"


@table(
    ("name", "goes"),
    [
        (b"Content-MD5", True),
        (b"DIGEST", True),
        (b"repr-digest", True),
        (b"Want-Content-Digest", True),
        (b"x-amz-content-sha256", True),
        (b"x-amz-checksum-crc32", True),
        (b"x-ms-content-crc64", True),
        (b"X-Content-SHA256", True),
        (b"x-goog-hash", True),
        (b"X-Checksum-Sha1", True),
        (b"X-Content-Type-Options", False),
        (b"X-Content-Shape", False),
        (b"X-Digest-Mail", False),
    ],
)
def test_a_hash_of_the_body_before_stays_with_no_message(name, goes):
    given, line = ((name, b"abc"),), b"%b: abc\r\n" % name
    head = request_head(Request("POST", b"/", given, b"{}"), 2, ADDRESS, body=True, target=False)
    lines = answer_lines(given, 2, None)
    assert (line in head, line in lines) == (not goes, not goes)


INPUT = b'Signature-Input: sig1=("@method" "content-digest");keyid="a"'
WEBHOOKS = (
    b"X-Hub-Signature-256: sha256=0a", b"Stripe-Signature: t=1,v1=0a", b"X-Signature: 0a",
    b"X-Shopify-Hmac-Sha256: 0a", b"webhook-signature: v1,0a", b"X-Slack-Signature: v0=0a",
    b"PayPal-Transmission-Sig: 0a", b"X-Signature-V2: 0a",
    b"X-Signature-Ed25519: 0a",
)  # fmt: skip


@table(
    ("body", "target", "fields", "stays"),
    [
        *[(True, False, (field,), False) for field in WEBHOOKS],
        *[(False, True, (field,), False) for field in WEBHOOKS],
        *[(False, False, (field,), True) for field in WEBHOOKS],
        (True, False, (INPUT, b"Signature: sig1=:0a:"), False),
        (True, False, (b"Signature: sig1=:0a:", INPUT.replace(b"content-", b"X-")), False),
        (False, True, (b'Signature: headers="(request-target) date"',), False),
        (True, True, (b"Signature: sig1=:0a:", b'Signature-Input: sig1=("@method")'), True),
        (True, False, (b"Signature: a=:0a:", b'Signature-Input: a=("@path")'), True),
        (False, True, (b"Signature: a=:0a:", b'Signature-Input: a=("@path")'), False),
        (False, True, (b"Signature: a=:0a:", b'Signature-Input: a=("@query")'), False),
        (False, True, (INPUT, b"Signature: sig1=:0a:"), True),
        (False, False, (INPUT, b"Signature: sig1=:0a:"), True),
        (True, True, (b"X-Signatures: 3", b"X-Design: a", b"X-Signature-Name: Bo"), True),
    ],
)
def test_a_signature_of_what_was_changed_stays_with_no_request(body, target, fields, stays):
    headers = tuple((name, value) for name, _, value in (one.partition(b": ") for one in fields))
    request = Request("POST", b"/p", headers, b"")
    head = request_head(request, None, ADDRESS, body=body, target=target)
    assert [one + b"\r\n" in head for one in fields] == [stays] * len(fields)


def test_a_request_without_a_host_gets_that_of_the_address():
    request = Request("GET", b"/", ((b"A", b"1"),), b"")
    assert (
        request_head(request, None, ADDRESS, body=False, target=False)
        == b"GET / HTTP/1.1\r\nA: 1\r\nHost: app.test:8080\r\n\r\n"
    )


def test_fields_of_a_restored_answer():
    given = (
        (b"Content-Encoding", b"gzip"),
        (b"content-encoding", b"br"),
        (b"ETAG", b"x"),
        (b"Set-Cookie", b"a"),
    )
    kept = [b"Set-Cookie: a\r\n", b"Cache-Control: private\r\n", b"Content-Length: 9\r\n"]
    assert answer_lines(given, 9, b"br") == [b"Content-Encoding: br\r\n", *kept]
    assert answer_lines(given, 9, None) == kept
    assert answer_lines(given, None, None) == kept[:2]
    assert answer_lines((), 9, b"br") == [b"Content-Encoding: br\r\n", *kept[1:]]
    assert answer_lines(((b"cache-CONTROL", b"public"), (b"A", b"b")), 9, None) == [
        b"cache-CONTROL: private\r\n",
        b"A: b\r\n",
        b"Content-Length: 9\r\n",
    ]


@table(
    ("given", "length", "kept"),
    [
        (b"bytes 0-49/50", 9, [b"Content-Range: bytes 0-8/9\r\n"]),
        (b" Bytes 10-19/*", 9, [b"Content-Range: bytes 0-8/9\r\n"]),
        (b"bytes 0-49/50", None, []),
        (b"items 0-24/66", 9, [b"Content-Range: items 0-24/66\r\n"]),
        (b"0-24/66", 9, [b"Content-Range: 0-24/66\r\n"]),
    ],
)
def test_a_range_of_bytes_is_that_of_the_restored_answer(given, length, kept):
    lines = answer_lines(((b"Content-Range", given),), length, None)
    assert [line for line in lines if line.startswith(b"Content-Range")] == kept


@table(
    ("headers", "length"),
    [((), None), (((b"content-length", b"7"),), 7), (((b"Content-Length", b"x"),), None)],
)
def test_the_declared_length(headers, length):
    assert declared_length(headers) == length


@table(
    ("field", "ordinary"),
    [
        ((b"precognition", b"true"), False),
        ((b"Preference-Applied", b"return=representation, tx=rollback"), False),
        ((b"X-Precognition", b"true"), True),
    ],
)
def test_an_answer_to_a_change_that_was_only_tried_is_not_ordinary(field, ordinary):
    fields = ((b"Content-Type", b"application/json"), field)
    block = b"".join(b"%b: %b\r\n" % one for one in fields)
    head = ResponseHead((1, 200, b"OK"), block, fields)
    assert bool(restored_head(head)) is ordinary
