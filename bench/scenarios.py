"""What the load sends: one source of requests for each connection, by the name of its scenario."""

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import msgspec

#: About 1 KB: five personal fields with one running number in each, and what an application sends
#: besides.
CONTACT = (
    b'{"first_name": "Bench%09d", "last_name": "Marker%09d", "email": "b%09d@example.net", '
    b'"phone": "+46700%09d", '
    b'"street": "Long Street %09d", "vip": true, "score": 12.50, "ratio": 1.0e3, "source": '
    b'"fair", "language": "sv", '
    b'"consents": [{"topic": "news", "given": true, "at": "2026-01-31T10:00:00Z"}, {"topic": '
    b'"calls", "given": false, '
    b'"at": null}], "company": {"name": "North Wind Trading", "size": 250, "country": "se", '
    b'"segments": ["retail", '
    b'"wholesale", "export"]}, "notes": "'
    + b"Met at the fair, asked for the price list of the next season. " * 8
    + b'"}'
)
_WIDEST = 10**9

#: Contacts that each connection creates before it updates them in turn.
SEEDED = 8


class Source(Protocol):
    """Makes the requests of one connection."""

    ready: bool  #: whether what must exist before measuring exists

    def next(self) -> tuple[bytes, bytes]:
        """The next request, and what the body of its answer must hold."""

    def answered(self, body: bytes) -> None:
        """The answer to the request before came."""


def request(method: bytes, path: bytes, body: bytes = b"") -> bytes:
    """A request as bytes on the wire."""
    head = (
        b"%b %b HTTP/1.1\r\nHost: bench.example.net\r\nAccept: application/json\r\nUser-Agent: bench\r\n"
        % (
            method,
            path,
        )
    )
    if not body:
        return head + b"\r\n"
    return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


class Creates:
    """A new person with each request."""

    ready = True

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers

    def next(self) -> tuple[bytes, bytes]:
        n = next(self._numbers) % _WIDEST
        return request(b"POST", b"/contacts", CONTACT % (n, n, n, n, n)), b"b%09d@example.net" % n

    def answered(self, body: bytes) -> None:
        """Nothing to remember."""


class LargeCreates(Creates):
    """A new person with each request, and that person's orders: a body of so many bytes."""

    def __init__(self, numbers: Iterator[int], size: int) -> None:
        super().__init__(numbers)
        orders = msgspec.json.decode(document(size - len(CONTACT)))["orders"]
        self._body = b'%b, "orders": %b}' % (CONTACT[:-1], msgspec.json.encode(orders))

    def next(self) -> tuple[bytes, bytes]:
        n = next(self._numbers) % _WIDEST
        body = self._body % (n, n, n, n, n)
        return request(b"POST", b"/contacts", body), b"b%09d@example.net" % n


class Updates:
    """The same few people again and again, with the values they already have."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._new = [next(numbers) % _WIDEST for _ in range(SEEDED)]
        self._pending: int | None = None
        self._known: list[tuple[bytes, bytes]] = []
        self._turns: Iterator[tuple[bytes, bytes]] = iter(())
        self.ready = False

    def next(self) -> tuple[bytes, bytes]:
        if self._new:
            self._pending = n = self._new.pop()
            return request(
                b"POST", b"/contacts", CONTACT % (n, n, n, n, n)
            ), b"b%09d@example.net" % n
        return next(self._turns)

    def answered(self, body: bytes) -> None:
        if self._pending is None:
            return
        n, self._pending = self._pending, None
        path = b"/contacts/%d" % msgspec.json.decode(body)["id"]
        self._known.append(
            (request(b"PUT", path, CONTACT % (n, n, n, n, n)), b"b%09d@example.net" % n)
        )
        self._turns = itertools.cycle(self._known)
        self.ready = not self._new


class Changes(Updates):
    """The same few people again and again, each time with other values."""

    def __init__(self, numbers: Iterator[int]) -> None:
        super().__init__(numbers)
        self._numbers = numbers

    def next(self) -> tuple[bytes, bytes]:
        wire, expected = super().next()
        if not self.ready:
            return wire, expected
        n, path = next(self._numbers) % _WIDEST, wire.split(b" ", 2)[1]
        return request(b"PUT", path, CONTACT % (n, n, n, n, n)), b"b%09d@example.net" % n


class Restored(Updates):
    """The same few people read again and again."""

    def answered(self, body: bytes) -> None:
        if self._pending is not None:
            n, self._pending = self._pending, None
            path = b"/contacts/%d" % msgspec.json.decode(body)["id"]
            self._known.append((request(b"GET", path), b"b%09d@example.net" % n))
            self._turns = itertools.cycle(self._known)
            self.ready = not self._new


class Reads:
    """One path that no rule names."""

    ready = True

    def __init__(self, _: Iterator[int]) -> None:
        self._same = request(b"GET", b"/static/page"), b"x" * 1024

    def next(self) -> tuple[bytes, bytes]:
        return self._same

    def answered(self, body: bytes) -> None:
        """Nothing to remember."""


SCENARIOS: dict[str, Callable[[Iterator[int]], Source]] = {
    "create": Creates,
    "100 KB": partial(LargeCreates, size=100_000),
    "1 MB": partial(LargeCreates, size=1_000_000),
    "update": Updates,
    "changed": Changes,
    "restored": Restored,
    "read": Reads,
}


def document(size: int) -> bytes:
    """A contact with its orders, about ``size`` bytes long, as a browser's ``JSON.stringify``
    writes it.
    """
    contact: dict[str, Any] = {
        "id": 4711,
        "type": "contact",
        "first_name": "Annelie",
        "last_name": "Grünwald-Østergård",
        "company": {"id": 12, "name": "Müller & Söhne", "city": "Köln", "employees": 240},
        "email": "annelie.gruenwald@example.com",
        "phone": "+49 30 90182755",
        "tags": ["customer", "newsletter"],
        "orders": [],
        "note": 'Prefers mornings.\nSays: "call the office first".',
        "vip": True,
        "score": 0.8125,
        "birth_date": "1980-02-29",
    }
    orders = contact["orders"]
    length = len(_compact(contact))
    number = 0
    while length < size - 60:
        number += 1
        orders.append(_order(number))
        length += len(_compact(orders[-1])) + 1
    return _compact(contact)


def _order(number: int) -> dict[str, Any]:
    return {
        "id": 100_000 + number,
        "placed": f"2026-03-{number % 28 + 1:02}T09:{number % 60:02}:00Z",
        "status": ("open", "paid", "sent")[number % 3],
        "total": number * 7 % 1000 + 0.95,
        "lines": [
            {
                "sku": f"A-{number % 97:04}",
                "count": number % 5 + 1,
                "title": "Filter coffee, whole beans, 500 g",
            }
        ],
        "address": {"street": "Lindenallee 12", "city": "Köln", "code": "50667"},
        "comment": None,
    }


def _compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
