"""Random exchanges for two gateways (``twoways``): requests, and what the application does."""

import json
import random
from dataclasses import replace
from typing import Any

from tests.support.rawclient import get, post
from tests.support.twoways import FIELDS, JSON, LAST_TAG, REFUSALS, Exchange
from tests.support.viewers import Badges

#: How often each is done among a thousand.
ACTS = {
    "take": 480, "turned": 40, "text id": 30, "only id": 20, "no id": 15, "same id": 15,
    "null": 20, "upper": 10, "other": 10, "not taken": 20, "large": 10, "list": 10, "bom": 12,
    "nothing": 15, "chunked": 30, "chunks": 30, "close": 20, "bye": 15, "cut": 10, "split": 25,
    "cut chunks": 10, "bad chunks": 12,
    "two writes": 20, "interim": 20, "continue": 12, "zipped": 15, "page": 10, "not http": 12,
    "hang up": 15, "tagged": 15, "cookie": 20, "cached": 15, "twice": 12,
    "declined": 15, "warned": 10, "no errors": 15,
    **dict.fromkeys(REFUSALS, 12),
}  # fmt: skip
FAULTS = ("Insert", "Bind", "StageRow", "Replace", "audit")


class Draw:
    """Draws exchanges, one after the other."""

    def __init__(self, seed: int, badges: Badges | None = None) -> None:
        self.dice, self.copies = random.Random(seed), random.Random(seed)
        self.badges = badges
        self.people: dict[str, dict[str, Any]] = {}  #: by id what was sent last
        self.last: dict[str, Any] = {}  #: the body of the last create
        self.again: Exchange | None = None  #: the last read, if another answer is wanted
        self.number = 0

    def created(self, number: int) -> None:
        """The application has so many records now."""
        if number > len(self.people):
            self.people[str(number)] = self.last

    def value(self, name: str) -> str:
        self.number += 1
        n = self.number
        texts = {
            "name": (f"Åsa Bengtsson {n}", f"Ann-{n} Lindqvist", f"Zoë {n} O'Brien", f"李小龙 {n}"),
            "email": (f"ann{n % 40}@example.com", f"Bo.Ek{n}@Example.org"),
            "phone": (f"+46701{n:06d}", f"070-12 {n:05d} 4455", f"0{n:07d}55501"),
            "note": (
                f"Likes tea {n}", f"Plays chess {n} ü", f"Sails {n}", f"line\nbreak {n}",
                f"Reads {n}",
            ),
        }  # fmt: skip
        return self.dice.choice(texts[name])

    def person(self) -> dict[str, Any]:
        """A body, now and then an odd one."""
        dice = self.dice
        one: dict[str, Any] = {name: self.value(name) for name in FIELDS}
        one |= {"vip": True, "score": 12.5, "tags": ["a", {"b": None}]}
        odd = dice.random()
        if dice.random() < 0.2:  # optional fields that are empty
            names = dice.choices(FIELDS, k=dice.choice((1, 1, 2, 4)))
            one |= {name: dice.choice((None, None, "")) for name in names}
        if self.people and self.copies.random() < 0.06:  # a token, also of a record that is gone
            words, of = ("name", "email", "note"), self.copies.choice(list(self.people)[-12:])
            field = self.copies.choice(words)  # digits are a value, another one in each house
            one[field] = f"{{{self.copies.choice((field, *words))} of {of}}}"
        if odd < 0.05:
            one.pop(dice.choice(FIELDS))
        elif odd < 0.08:
            one[dice.choice(FIELDS[:2])] = dice.choice([12, True, ["x"], {"y": 1}, "ab"])
        elif odd < 0.11:
            one["comment"] = f"see {one[dice.choice(FIELDS)]}"
        elif odd < 0.13:
            one = dict(reversed(one.items()))
        elif odd < 0.18:
            one["orders"] = self.orders(one)
        elif odd < 0.2:
            one[dice.choice(["Name", "e_mail", "address.street", "extra", "id"])] = "something"
        return one

    def orders(self, one: dict[str, Any]) -> list[Any]:
        """What makes a body long: up to 130 KB, now and then with a value or too deep."""
        dice = self.dice
        lines, count = [{"title": "Café, 500 g"}], dice.randrange(110, 900)
        orders: list[Any] = [{"id": n, "lines": lines, "text": "x" * 80} for n in range(count)]
        deep, value = json.loads("[" * 64 + "]" * 64), one[dice.choice(FIELDS)]
        orders[-2]["text"] = dice.choice(["y"] * 9 + [f"for {value}", deep, "a [ in a \n text"])
        return orders

    def spelled(self, one: dict[str, Any]) -> bytes:
        dice = self.dice
        body = json.dumps(
            one,
            ensure_ascii=dice.random() < 0.2,
            separators=dice.choice([None, (",", ":"), (", ", ": ")]),
        ).encode()
        odd = dice.random()
        if odd < 0.02:
            body = body.replace(b'"name"', b'"name": "Twice Told", "name"', 1)
        elif odd < 0.03:
            body = body[:-3]
        elif odd < 0.04:
            body = b"[%b]" % body
        elif odd < 0.05:
            body = b" " + body + b"\r\n"
        elif odd < 0.06:
            body = body.replace(
                b"12.5", dice.choice([b"1e400", b"1.0", b"-0", b"123456789012345678901"])
            )
        elif odd < 0.065:
            body = body[:-1] + b',"blob":"%b"}' % (b"z" * dice.choice([20_000, 2_200_000]))
        return body

    def exchange(self) -> Exchange:
        """The next one."""
        dice = self.dice
        if (again := self.again) is not None and dice.random() < 0.4:
            self.again = None
            return again
        act = dice.choices(list(ACTS), list(ACTS.values()))[0]
        fault = dice.choice(FAULTS) if dice.random() < 0.05 else ""
        request = self.request()
        behind = self.request() if dice.random() < 0.08 else b""
        made = Exchange(request, act, fault, behind, dice.randrange(1 << 30))
        if request.startswith(b"GET"):
            unchanged = b"%bIf-None-Match: %b\r\n\r\n" % (request[:-2], LAST_TAG)
            self.again = replace(made, request=unchanged, behind=b"")
        return made

    def request(self) -> bytes:
        """The bytes of a request."""
        dice, verb, fields = self.dice, self.dice.random(), self.fields()
        if verb < 0.4 or not self.people:
            one = self.last = self.person()
            return post(dice.choice(["/p"] * 20 + ["/p?x=1"]), self.spelled(one), *fields)
        ident = dice.choice(list(self.people)[-12:])
        path, odd = f"/p/{ident}", (
            f"/p/0{ident}", f"/p/{ident}?q=1", "/p/999999", f"/p/k-{ident}-Ab", f"/P/{ident}",
            f"/p/{ident}/",
        )  # fmt: skip
        if dice.random() < 0.04:
            path = dice.choice(odd)
        if verb < 0.65:
            return get(path, *fields[1:], method="HEAD" if dice.random() < 0.03 else "GET")
        if verb < 0.97:
            return self.update(ident, path, fields)
        return get(path, *fields[1:], method="DELETE")

    def fields(self) -> list[str]:
        """The header fields of a request, its type first."""
        dice, types = self.dice, (
            "Content-Type: text/plain", "X-None: 1", "Content-Type: application/json-patch+json",
            "Content-Type: application/x-www-form-urlencoded",
        )  # fmt: skip
        more = (
            "Accept-Encoding: gzip, br", "Cookie: a=b", "If-None-Match: *", "Connection: close",
            "Referer: http://app.test/p?email=ann1@example.com", "Referer: /p",
            "Connection: keep-alive\r\nX-Forwarded-For: 192.0.2.7", "X-HTTP-Method-Override: PUT",
        )  # fmt: skip
        usual = JSON if dice.random() < 0.8 else JSON + "; charset=utf-8"
        fields = [dice.choice(types) if dice.random() < 0.05 else usual]
        if dice.random() < 0.2:
            fields.append(dice.choice(("If-None-Match", "If-Match")) + ": {tag}")
        if dice.random() < 0.05:
            fields.append(dice.choice(more))
        return fields if self.badges is None else [*fields, *self.badges.fields()]

    def update(self, ident: str, path: str, fields: list[str]) -> bytes:
        """An update of a record."""
        dice, before = self.dice, self.people[ident]
        one = dict(before)
        if dice.random() < 0.5:
            one |= {name: self.value(name) for name in FIELDS if dice.random() < 0.5}
        if dice.random() < 0.1:
            one = self.person()
        if dice.random() < 0.1 and isinstance(one.get("email"), str):
            one["email"] = one["email"].swapcase()  # its token stays
        patch = dice.random() < 0.5
        if patch and dice.random() < 0.4:
            one = {name: one[name] for name in FIELDS if name in one and dice.random() < 0.6}
        self.people[ident] = {**before, **one}
        if self.badges is not None and dice.random() < 0.15:
            one = self.badges.masked(one)
        return post(path, self.spelled(one), *fields, method="PATCH" if patch else "PUT")
