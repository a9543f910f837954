"""Measure 15: documents of every spelling through the proxy, and each byte outside the selected
values compared.

A document is a list of pieces: what stands outside the values, a value's literal, what stands
outside, and so on. So the bytes that must stay are known without parsing anything.
"""

import contextlib
import http.client
import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence

from bench.rounds import Failed

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SPACES = (b"", b"", b"", b" ", b"  ", b"\n", b"\t", b"\r\n  ")
_SCALARS = (
    *(
        b"0",
        b"-0",
        b"1.0",
        b"1.50",
        b"-0.0",
        b"1e5",
        b"1E+05",
        b"6.02e-23",
        b"123456789012345678901234567890",
    ),
    *(
        b"true",
        b"false",
        b"null",
        b'""',
        b'"plain"',
        b'"\\u00e9"',
        '"é"'.encode(),
        b'"\\/"',
        b'"\\ud83d\\ude00"',
    ),
    *('"😀"'.encode(), b'"a\\"b\\\\"', b'"\\u0041\\t\\n"', b'"\\u2028"', b'"<&>"', b"[]", b"{}"),
)
#: Names of members that no selector names; none that differs from a field in letter case alone,
#: which is refused.
_NAMES = (
    b'"notes"',
    b'"vip"',
    b'"\\u0061lias"',
    '"größe"'.encode(),
    b'"e mail"',
    b'"E_mails"',
    b'"email2"',
    b'"x.y"',
)
#: Literals of texts; each field gets one, with a number in it that occurs once.
_TEXTS = (
    b'"Ann %d"',
    b'"\\u00c5sa %d"',
    '"Åsa %d"'.encode(),
    b'"O\'Hara \\"%d\\""',
    b'"%d \\ud83d\\ude00"',
    b'"a\\/b\\n%d"',
)
_FIELDS: dict[bytes, tuple[bytes, ...]] = {
    b'"first_name"': _TEXTS,
    b'"last_name"': _TEXTS,
    b'"street"': _TEXTS,
    b'"email"': (b'"person%d@example.net"', b'"Person.%d+tag@Example.net"'),
    b'"phone"': (b'"+46701%06d"', b'"070-%07d"'),
}


def documents(seed: int) -> Iterator[list[bytes]]:
    """Endlessly many documents with the five fields, as pieces; the values stand at the odd places."""
    chance = random.Random(seed)
    for number in itertools.count(1):
        yield _document(chance, number)


def _document(chance: random.Random, number: int) -> list[bytes]:
    members: list[bytes] = [*_FIELDS, *chance.sample(_NAMES, chance.randrange(len(_NAMES)))]
    chance.shuffle(members)
    pieces = [_space(chance) + b"{"]
    for place, name in enumerate(members):
        pieces[-1] += (
            (b"," if place else b"")
            + _space(chance)
            + name
            + _space(chance)
            + b":"
            + _space(chance)
        )
        if name in _FIELDS:
            pieces.extend((chance.choice(_FIELDS[name]) % number, _space(chance)))
        else:
            pieces[-1] += _anything(chance, 3) + _space(chance)
    pieces[-1] += b"}" + _space(chance)
    return pieces


def _space(chance: random.Random) -> bytes:
    return chance.choice(_SPACES)


def _anything(chance: random.Random, depth: int) -> bytes:
    """Any JSON value; nested objects may use the names of the fields, where no selector reaches."""
    kind = chance.random()
    if depth == 0 or kind < 0.6:
        return chance.choice(_SCALARS)
    inner = [
        _space(chance) + _anything(chance, depth - 1) + _space(chance)
        for _ in range(chance.randrange(1, 4))
    ]
    if kind < 0.8:
        return b"[" + b",".join(inner) + b"]"
    names = chance.sample((*_NAMES, *_FIELDS), len(inner))
    return (
        b"{"
        + b",".join(name + b":" + value for name, value in zip(names, inner, strict=True))
        + b"}"
    )


def changed(pieces: Sequence[bytes], came: bytes) -> tuple[int, list[bytes]]:
    """How many bytes outside the values differ, and the literals that stand in the places of the
    values.
    """
    wrong = position = 0
    literals: list[bytes] = []
    for place, piece in enumerate(pieces):
        if place % 2:
            literal = _STRING.match(came, position)
            if literal is None:
                return wrong + sum(map(len, pieces[place + 1 :: 2])), literals
            literals.append(literal[0])
            position = literal.end()
        else:
            part = came[position : position + len(piece)]
            wrong += sum(a != b for a, b in zip(part, piece, strict=False)) + len(piece) - len(part)
            position += len(piece)
    return wrong + max(0, len(came) - position), literals


def bytes_changed(proxy_port: int, app_port: int, count: int, seed: int = 15) -> int:
    """Bytes outside the values that ``count`` documents lost or gained, on the way in and on the
    way out together.

    Raises:
        Failed: a document was refused, a value reached the application, or one did not come back to
        the caller.
    """
    total = 0
    with (
        contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", proxy_port, timeout=60)
        ) as proxy,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", app_port, timeout=60)) as app,
    ):
        for pieces in itertools.islice(documents(seed), count):
            answer = _exchange(proxy, "POST", "/documents", b"".join(pieces))
            number = json.loads(answer)["id"]
            received = _exchange(app, "GET", f"/received/{number}")
            inward, tokens = changed(pieces, received)
            # the application's own member
            first = pieces[0].replace(b"{", b'{"id":%d,' % number, 1)
            outward, values = changed([first, *pieces[1:]], answer)
            total += inward + outward
            if not inward + outward:  # else the literals may be read at the wrong places
                _check(pieces[1::2], tokens, values)
    return total


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> bytes:
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    response = connection.getresponse()
    answer = response.read()
    if response.status not in {200, 201}:
        raise Failed(
            f"{method} {path} answered {response.status}: {answer[:200].decode(errors='replace')}"
        )
    return answer


def _check(sent: Sequence[bytes], tokens: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Every value must have been hidden and restored; how a restored one is spelled is free."""
    if any(
        json.loads(token) == json.loads(value) for token, value in zip(tokens, sent, strict=False)
    ):
        raise Failed("a document reached the application with a value in it")
    if [json.loads(value) for value in values] != [json.loads(value) for value in sent]:
        raise Failed("a document came back to the caller with another value than was sent")
