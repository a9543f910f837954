"""The exchanges of the differential test: everything that HTTP/1.1 allows and some application or
caller does.
"""

import gzip
from collections.abc import Iterator

from tests.support.differing import Case
from tests.support.rawclient import chunked, get, post
from tests.support.rawserver import OK

TARGETS = [
    "/", "/?", "/a?", "/a??b", "/a?b?c", "/?a=1&a=2&a", "/a?&&=&", "/a?b=%2f&c=%C3%A9",
    "/a?x=http://y/?z", "/a?+%20+",
    "//", "//a//b//", "/a//", "/./a", "/a/.", "/a/../b", "/..", "/%2e%2e/x", "/a/%2E./b",
    "/%2F", "/%2f%5c", "/a%20b",
    "/%", "/%zz", "/a%00b", "/%e9", "/A%c3%a9", "/a;b=c;d", "/;", "/a,b", "/a+b", "/~user",
    "/a:b@c", "/a!$&'()*", "/a=b",
    "/a|b", '/a"b', "/a<b>", "/a^b", "/a`b", "/a{b}", "/a\\b", "/[x]", "/a#b", "/?#", "/\xe9",
    "/\xc3\xa9?\xc3\xa9",
    "/a?\xff", "http://app.test/absolute", "http://app.test", "HTTP://app.test/x?y",
    "http://APP.test/", "/" + "a" * 7000,
    "/?" + "q=1&" * 1500,
]  # fmt: skip

METHODS = [
    "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "MKCOL", "LOCK",
    "REPORT", "SEARCH",
    "PURGE", "QUERY", "BREW", "LINK", "X", "M-SEARCH", "VERSION-CONTROL", "get", "Post", "A1",
    "!#$%&'*+-.^_`|~",
]  # fmt: skip

REQUEST_FIELDS: dict[str, list[str]] = {
    "spelling and order": ["x-b: 1", "X-A: 2", "X-b: 3", "ACCEPT: */*"],
    "repetition": ["X: 1", "Y: 2", "X: 1", "X: 3"],
    "white space around": ["X:1", "Y:  2", "Z:\t3\t "],
    "white space within": ["X: a  b\tc"],
    "an empty value": ["X:", "Y: "],
    "Latin-1": ["X: \xe9t\xe9\xff"],
    "UTF-8": ["X: \xc3\xa9"],
    "quotes and commas": ['X: "a, b", c;d="e\\"f"'],
    "a long value": ["X: " + "y" * 7000],
    "many fields": [f"X-{number}: {number}" for number in range(90)],
    "odd names": ["X!#$%&'*+.^`|~1: y", "1: x"],
    "underscores in names": ["X_Y: z", "x_y: Z"],
    "cookies": ["Cookie: a=b; c=d", "Cookie: e"],
    "an odd cookie": ['Cookie: a="b c"; ;=; {"x":1}; \xe9'],
    "Authorization": ["Authorization: Basic dTpw"],
    "a bearer": ["authorization: Bearer a.b.c=="],
    "Range": ["Range: bytes=0-1,5-", 'If-Range: "a"'],
    "conditions": [
        'If-None-Match: W/"a", "b"', "If-Modified-Since: Sat, 29 Oct 1994 19:43:31 GMT",
        'If-Match: "c"',
    ],
    "Accept": [
        "Accept: text/*;q=0.3, */*;q=0.5", "Accept-Language: da, en-gb;q=0.8", "Accept-Charset: x",
    ],
    "Accept-Encoding": ["Accept-Encoding: br;q=1.0, gzip;q=0.8, *;q=0.1, x-own"],
    "User-Agent twice": ["User-Agent: a", "User-Agent: b"],
    "Content-Type twice": ["Content-Type: text/a", "Content-Type: text/b"],
    "CORS asked": [
        "Origin: null", "Access-Control-Request-Method: PUT",
        "Access-Control-Request-Headers: x, y",
    ],
    "fetch metadata": [
        "Sec-Fetch-Site: cross-site", 'Sec-CH-UA: "x";v="1"', "Upgrade-Insecure-Requests: 1",
        "DNT: 1",
    ],
    "Referer": ["Referer: http://x/?a#b", "From: a@b"],
    "tracing": ["traceparent: 00-0af7-b7ad-01", "tracestate: a=b", "X-Request-ID: 1"],
    "caching": ["Cache-Control: no-cache", "Pragma: no-cache", "Warning: 199 - x"],
    "Max-Forwards": ["Max-Forwards: 0"],
    "Connection: close": ["Connection: close"],
    "Connection: keep-alive": [
        "Connection: keep-alive", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive",
    ],
    "fields that Connection names": ["Connection: close, X-Hop", "X-Hop: 1", "X-Kept: 2"],
    "HTTP2-Settings": [
        "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk",
    ],
    "TE": ["TE: trailers", "Connection: TE"],
    "Date": ["Date: whenever", "Expires: 0"],
    "Content-Encoding without a body": ["Content-Encoding: gzip", "Content-Language: sv"],
    "a method override": ["X-HTTP-Method: GET"],
    "Trailer": ["Trailer: X-Sum"],
    "Priority": ["Priority: u=1, i", "Save-Data: on", "Alt-Used: x"],
}  # fmt: skip

BODIES: dict[str, bytes] = {
    "empty": post("/", b""),
    "one byte": post("/", b"x"),
    "every byte": post("/", bytes(range(256)), "Content-Type: application/octet-stream"),
    "JSON": post("/", b'{ "a" : 1.0e2 }\n', "Content-Type: application/json"),
    "a form": post("/", b"a=b&&a=%zz+", "Content-Type: application/x-www-form-urlencoded"),
    "multipart": post(
        "/", b"--x\r\n\r\na\r\n--x--\r\n", "Content-Type: multipart/form-data; boundary=x"
    ),
    "gzip": post("/", gzip.compress(b"abc" * 100, mtime=0), "Content-Encoding: gzip"),
    "100 kB": post("/", bytes(range(250)) * 400),
    "1 MB": post("/", bytes(range(250)) * 4000),
    "of a GET": post("/", b"abc", method="GET"),
    "of a DELETE": post("/", b"abc", method="DELETE"),
    "of an own method": post("/", b"abc", method="BREW"),
    "line ends": post("/", b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
    "looks like chunks": post("/", b"0\r\n\r\n"),
    "zeros before the length": get("/", "Content-Length: 003", method="POST") + b"abc",
    "one chunk": chunked("/", b"abc"),
    "many chunks": chunked("/", *(b"x" * size for size in range(1, 60))),
    "an empty body in chunks": chunked("/"),
    "big chunks": chunked("/", b"x" * 70_000, b"y" * 70_000),
    "a spelling of chunked": chunked("/", b"abc").replace(b"chunked", b"Chunked"),
    "capitals in chunk sizes": chunked("/", b"x" * 171).replace(b"ab\r\n", b"00AB\r\n"),
    "chunk extensions": chunked("/", b"abc").replace(b"3\r\n", b'3;a=b;c="d"\r\n'),
    "trailers": chunked("/", b"abc", trailers=b"X-Sum: 1\r\n", fields=("Trailer: X-Sum",)),
    "trailers repeated": chunked("/", b"abc", b"d", trailers=b"X-Sum: 1\r\nx-sum: \xe9\r\nY:\r\n"),
    "trailers of an empty body": chunked("/", trailers=b"X-Sum: 1\r\n"),
}

STATUSES = [
    "200 OK", "201 Created", "202 Accepted", "203 Non-Authoritative Information",
    "205 Reset Content", "207 Multi-Status",
    "226 IM Used", "299 Own", "300 Multiple Choices", "301 Moved Permanently", "302 Found",
    "303 See Other", "307 Again",
    "308 Permanent Redirect", "400 Bad Request", "401 Unauthorized", "402 Payment Required",
    "403 Forbidden",
    "404 Not Found", "405 Method Not Allowed", "407 Proxy Authentication Required",
    "408 Request Timeout", "409 Conflict",
    "413 Content Too Large", "416 Range Not Satisfiable", "418 I'm a teapot",
    "421 Misdirected Request", "422 No",
    "425 Too Early", "428 Precondition Required", "429 Too Many Requests", "431 Large",
    "444 Own", "451 Law", "499 Own",
    "500 Internal Server Error", "501 Not Implemented", "502 Bad Gateway", "503 Busy",
    "504 Late", "511 N", "599 Own",
    "200 ", "200", "200 A  reason of its own", "200 r\xe9ason", "200 OK\tOK", "200 200 OK",
    "666 Beyond", "999 Far beyond",
]  # fmt: skip

ANSWER_FIELDS: dict[str, list[str]] = {
    "spelling and order": ["x-b: 1", "X-A: 2", "X-b: 3"],
    "white space around": ["X:1", "Y:  2", "Z:\t3\t "],
    "an empty value": ["X:", "Y: "],
    "Latin-1 and UTF-8": ["X: \xe9", "Y: \xc3\xa9"],
    "odd names": ["X!#$%&'*+.^`|~1: y", "X_Y: z"],
    "cookies": [
        "Set-Cookie: a=b; Expires=Wed, 21 Oct 2015 07:28:00 GMT",
        "set-cookie: c=d; Path=/; HttpOnly", "Set-Cookie: e",
    ],
    "an odd cookie": ['Set-Cookie: a="b c", d; SameSite=None; \xe9'],
    "who answers": [
        "Server: app/1.0 (x)", "Date: Tue, 15 Nov 1994 08:12:31 GMT", "X-Powered-By: y",
        "Via: 1.0 z",
    ],
    "Date alone": ["Date: whenever"],
    "validators": [
        'ETag: W/"a"', "Last-Modified: Tue, 15 Nov 1994 12:45:26 GMT", "Vary: *", "Age: 5",
    ],
    "caching": [
        "Cache-Control: private, max-age=0", "Expires: -1", "Pragma: no-cache",
        "CDN-Cache-Control: x",
    ],
    "Location of its own": ["Location: http://127.0.0.1:3000/x?y#z"],
    "Location elsewhere": ["Location: //other/\xe9"],
    "Refresh": ["Refresh: 5; url=http://127.0.0.1/x", "Content-Location: /y"],
    "a name for a file": [
        "Content-Disposition: attachment; filename*=UTF-8''%e2%82%ac; filename=\"\xc3\xa9\"",
    ],
    "a coding": ["Content-Encoding: gzip", 'Content-Type: text/plain;charset="x"'],
    "CORS": [
        "Access-Control-Allow-Origin: *", "Access-Control-Allow-Credentials: true",
        "Access-Control-Expose-Headers: x",
    ],
    "security": [
        "Content-Security-Policy: " + "x 'self'; " * 100, "Strict-Transport-Security: max-age=1",
    ],
    "links": ["Link: </a>; rel=preload, </b>", 'Alt-Svc: h3=":443"', "Timing-Allow-Origin: *"],
    "ranges": ["Accept-Ranges: bytes", "Content-Range: bytes */10"],
    "challenges": [
        'WWW-Authenticate: Basic realm="a, b"', "WWW-Authenticate: Negotiate", "Retry-After: 5",
    ],
    "a challenge of a proxy": ["Proxy-Authenticate: Basic", "Proxy-Authentication-Info: x"],
    "X-Accel": ["X-Accel-Buffering: no", "X-Accel-Expires: 0"],
    "many fields": [f"X-{number}: {number}" for number in range(90)],
    "a long value": ["X: " + "y" * 8000],
    "30 kB": [f"X-{number}: " + "y" * 1000 for number in range(30)],
    "fields that Connection names": [
        "Connection: X-Hop", "X-Hop: 1", "X-Kept: 2", "Keep-Alive: timeout=5",
    ],
    "Content-Type twice": ["Content-Type: text/a", "content-type: text/b"],
    "Trailer": ["Trailer: X-Sum"],
    "Digest": ["Content-Digest: sha-256=:x:", "Content-MD5: x"],
}  # fmt: skip

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BIG = bytes(range(250)) * 4000

FRAMINGS: dict[str, tuple[bytes, bytes]] = {
    "a length of zero": (get(), HEAD + b"Content-Length: 0\r\n\r\n"),
    "a length spelled oddly": (get(), HEAD + b"content-LENGTH:2\r\n\r\nok"),
    "1 MB of known length": (get(), HEAD + b"Content-Length: %d\r\n\r\n" % len(BIG) + BIG),
    "every byte": (get(), HEAD + b"Content-Length: 256\r\n\r\n" + bytes(range(256))),
    "one chunk": (get(), CHUNKED + b"2\r\nok\r\n0\r\n\r\n"),
    "no chunk": (get(), CHUNKED + b"0\r\n\r\n"),
    "many chunks": (get(), CHUNKED + b"1\r\nx\r\n" * 300 + b"0\r\n\r\n"),
    "big chunks": (get(), CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BIG), BIG)),
    "chunk extensions": (get(), CHUNKED + b'2;a="b"\r\nok\r\n0;c\r\n\r\n'),
    "trailers": (
        get("/", "TE: trailers", "Connection: TE"),
        CHUNKED + b"2\r\nok\r\n0\r\nX-Sum: 1\r\nx-sum:2\r\n\r\n",
    ),
    "trailers nobody asked for": (get(), CHUNKED + b"0\r\nX-Sum: \xe9\r\n\r\n"),
    "HEAD with a length": (get(method="HEAD"), HEAD + b"Content-Length: 1000\r\n\r\n"),
    "HEAD with chunks": (get(method="HEAD"), CHUNKED),
    "HEAD with neither": (get(method="HEAD"), HEAD + b"X: y\r\n\r\n"),
    "HEAD of what is not there": (
        get(method="HEAD"), b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n",
    ),
    "204": (get(), b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n"),
    "304 with a length": (
        get(), b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 1000\r\n\r\n',
    ),
    "304 without": (get(), b"HTTP/1.1 304 Not Modified\r\nDate: x\r\n\r\n"),
    "206": (
        get("/", "Range: bytes=0-1"),
        b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nok",
    ),
    "HTTP/1.0 with a length, kept": (
        get(),
        OK.replace(b"1.1 200 OK\r\n", b"1.0 200 OK\r\nConnection: keep-alive\r\n"),
    ),
    "a body that begins with line ends": (get(), HEAD + b"Content-Length: 6\r\n\r\n\r\n\r\nok"),
    "early hints": (get(), b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nlink: </b>\r\n\r\n" + OK),
    "early hints twice": (get(), b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" * 2 + OK),
    "processing": (get(), b"HTTP/1.1 102 Processing\r\n\r\n" + OK),
    "an own interim answer": (get(), b"HTTP/1.1 199 Own\r\nX: y\r\n\r\n" + OK),
}  # fmt: skip

CLOSING: dict[str, tuple[bytes, bytes]] = {
    "a body that ends with the connection": (get(), HEAD + b"X: y\r\n\r\nall of it"),
    "an empty one": (get(), HEAD + b"X: y\r\n\r\n"),
    "1 MB of it": (get(), HEAD + b"\r\n" + BIG),
    "HTTP/1.0": (get(), b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nall of it"),
    "HTTP/1.0 with a length": (get(), b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    "Connection: close with a length": (
        get(), HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok",
    ),
    "Connection: close with chunks": (
        get(), CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"0\r\n\r\n",
    ),
    "a close that nobody announced": (get(), OK),
    "a caller of HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", OK),
    "a caller of HTTP/1.0 without Host": (b"GET / HTTP/1.0\r\n\r\n", OK),
    "a caller of HTTP/1.0 and a stream": (
        b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", HEAD + b"\r\nall of it",
    ),
    "a body of a caller of HTTP/1.0": (
        b"POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", OK,
    ),
}  # fmt: skip

HOSTS = [
    "APP.test", "app.test:80", "app.test:8080", "app.test.", "127.0.0.1", "[::1]:80", "a-b_c.test",
    "xn--9ca.test", "",
]  # fmt: skip

UPGRADE = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x==",
    "Sec-WebSocket-Version: 13",
)  # fmt: skip
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
    b"Upgrade\r\nSec-WebSocket-Accept: y\r\n\r\n"
)
EXPECT = "Expect: 100-continue"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LF = b"HTTP/1.1 200 OK\nX: y\nContent-Length: 2\n\nok"


def cases() -> list[Case]:
    """All of them, each under a name of its own."""
    found = list(_cases())
    assert len({case.name for case in found}) == len(found)
    return found


def _cases() -> Iterator[Case]:
    for target in TARGETS:
        yield Case(f"target {target[:30]}", (get(target),))
    yield Case("target * of OPTIONS", (get("*", method="OPTIONS"),))
    for method in METHODS:
        yield Case(f"method {method}", (get(method=method),))
    for host in HOSTS:
        yield Case(f"host {host or 'of no name'}", (get(host=host),))
    for name, fields in REQUEST_FIELDS.items():
        yield Case(f"request fields: {name}", (get("/", *fields),))
    for name, request in BODIES.items():
        yield Case(f"request body: {name}", (request,))
    for status in STATUSES:
        yield Case(
            f"status {status}",
            (get(),),
            (f"HTTP/1.1 {status}\r\n".encode("latin-1") + OK.partition(b"\r\n")[2],),
        )
    for name, fields in ANSWER_FIELDS.items():
        head = "\r\n".join(["HTTP/1.1 200 OK", *fields, "Content-Length: 2", "", ""])
        yield Case(f"answer fields: {name}", (get(),), (head.encode("latin-1") + b"ok",))
    for name, (request, answer) in FRAMINGS.items():
        yield Case(f"answer: {name}", (request,), (answer,))
    for name, (request, answer) in CLOSING.items():
        yield Case(f"closing: {name}", (request,), (answer,), closes=True)
    yield from _several()


def _several() -> Iterator[Case]:
    asking = (
        get("/", EXPECT, "Content-Length: 3", method="POST") + b"abc",
        chunked("/", b"abc", fields=(EXPECT,)),
    )
    for kind, request in zip(("length", "chunks"), asking, strict=True):
        yield Case(f"continue: granted before {kind}", (request,), early=CONTINUE, waits=True)
        yield Case(f"continue: not waited for, {kind}", (request,), early=CONTINUE)
    granted = b"HTTP/1.1 100 Go on\r\nX: y\r\n\r\n"
    yield Case("continue: granted with words of its own", asking[:1], early=granted, waits=True)
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    yield Case("continue: hints first", asking[:1], early=hints + CONTINUE)
    mixed = (
        get("/1"),
        post("/2", b"abc"),
        chunked("/3", b"d", trailers=b"X: y\r\n"),
        get("/4", method="BREW"),
        get("/5"),
    )
    named = tuple(OK.replace(b"ok", b"%02d" % number) for number in range(20))
    yield Case("pipelined: twenty", tuple(get(f"/{number}") for number in range(20)), named)
    yield Case("pipelined: of every kind", mixed, named)
    yield Case(
        "pipelined: with a HEAD between",
        (get("/1"), get("/2", method="HEAD"), get("/3")),
        (OK, HEAD + b"Content-Length: 9\r\n\r\n", OK),
    )
    yield Case("half closed: a request", (get(),), half=True)
    yield Case(
        "half closed: a body", (post("/", b"abc"),), (CHUNKED + b"2\r\nok\r\n0\r\n\r\n",), half=True
    )
    yield Case("half closed: several requests", (get("/1"), get("/2"), get("/3")), named, half=True)
    yield Case("upgrade: to websocket", (get("/", *UPGRADE),), (SWITCH,))
    yield Case("upgrade: declined", (get("/", *UPGRADE), get("/next")))
    yield Case("line ends: LF throughout", (get(),), (LF,), direct=LF.replace(b"\n", b"\r\n"))
    yield Case(
        "line ends: LF throughout, closing",
        (get(),),
        (b"HTTP/1.0 200 OK\nX: y\n\nok",),
        closes=True,
        direct=b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nok",
    )
