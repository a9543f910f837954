"""Callers of every role before a house of ``twoways``: an issuer that signs tokens, or is asked
about them, and requests with these, with bad ones, and with none.
"""

import json
import random
import urllib.parse
from collections.abc import Mapping
from typing import Any

from proxy.clock import Clock
from proxy.tokenization.mask import field_mask
from tests.support.issuer import AskedIssuer, claims, document, made, public, token, unsigned

CALLERS = {
    "jwt": "{from: jwt, jwks: 'https://id.example/keys'}",
    "introspection": "{from: introspection, url: 'https://id.example/ask'}",
}
VIEWS = """\
views:
  - {who: [dpo], person: clear}
  - {who: [sales], person: clear, except: {phone: mask, note: token}}
  - {who: [desk], person: mask}
  - {who: [post], person: token, except: {name: clear}}
"""
#: How often each shows its token among a hundred requests; the first sees everything.
ROLES = {"dpo": 50, "sales": 20, "desk": 12, "post": 6, "nobody": 2}
#: Of these, by their share, nothing is proved.
BAD = ("none", "expired", "early", "forged", "unsigned", "two", "basic", "a header")

_KINDS = {"name": "name", "email": "email", "phone": "phone", "note": "text"}


def with_views(rules: str, caller: str) -> str:
    """The rules of the houses with callers of that kind, and views."""
    head, _, rest = rules.partition('"{upstream}"}}')
    told = CALLERS[caller].replace("{", "{{").replace("}", "}}")
    views = VIEWS.replace("{", "{{").replace("}", "}}")
    return f'{head}"{{upstream}}", caller: {told}}}}}{rest}{views}'


class Register(AskedIssuer):
    """Knows the tokens of a lot of ``Badges``, or publishes what these are signed with."""

    def __init__(self, badges: "Badges") -> None:
        super().__init__(b"")
        self.badges = badges

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> bytes:
        if method == "GET":
            self.body = document(*self.badges.published)
        else:
            shown = urllib.parse.parse_qs(body.decode())["token"][0]
            self.body = json.dumps(self.badges.known.get(shown, {"active": False})).encode()
        return await super().ask(method, url, headers, body)


class Badges:
    """Draws what callers show; the same for all houses."""

    def __init__(self, dice: random.Random, clock: Clock) -> None:
        self._dice, self.clock = dice, clock
        self._keys = [made("ES256"), made("ES256")]
        self._number = 0
        self.published: list[dict[str, Any]] = []
        self.known: dict[str, dict[str, Any]] = {}  #: what introspection says of a token
        self._good: dict[str, str] = {}  #: by role
        self._bad: list[str] = []
        self.rotate()

    def rotate(self) -> None:
        """Sign with a new key; the one before is not published any more, nor are its tokens good
        when they are asked about.
        """
        self._number += 1
        self._keys = [made("ES256"), *self._keys[:1]]
        self.published = [public(self._keys[0], kid=f"k{self._number}")]
        self.known.clear()
        self._bad = [*self._good.values(), *self._bad][:20]
        self._good.clear()

    def change(self) -> None:
        """Somebody has another role from now on; the token stays, where it is asked about."""
        if self.known:
            self.known[self._dice.choice(list(self.known))]["roles"] = [
                self._dice.choice(list(ROLES))
            ]
        self._good.pop(self._dice.choice(list(ROLES)), None)

    def signed(self, role: str, key: int = 0, **more: Any) -> str:
        """A token of that role."""
        said = claims(self.clock(), roles=[role, "staff"], **more)
        made_out = token(self._keys[key], said, kid=f"k{self._number}")
        self.known[made_out] = {"active": True, **said}
        return made_out

    def of(self, role: str) -> str:
        """A good token of that role, which nearly always was shown before."""
        if role not in self._good or self._dice.random() < 0.03:
            seconds = self._dice.choice([5, 40, 300])
            end = self.clock() // 1000 + seconds
            self._good[role] = self.signed(role, exp=end)
            self._bad = [self._good[role], *self._bad][:20]  # some day it has ended
        return self._good[role]

    def fields(self) -> list[str]:
        """The fields of one request."""
        dice, odd = self._dice, self._dice.random()
        if odd < 0.004:
            self.rotate()
        elif odd < 0.012:
            self.change()
        roles, shares = list(ROLES), list(ROLES.values())
        role = dice.choices([*roles, "bad"], [*shares, 10])[0]
        return self._odd(dice.choice(BAD)) if role == "bad" else [_bearer(self.of(role))]

    def _odd(self, what: str) -> list[str]:
        now, good = self.clock(), self.of("dpo")
        shown = {
            "none": [],
            "early": [_bearer(self.signed("dpo", nbf=now // 1000 + 3600))],
            "forged": [_bearer(token(self._keys[1], claims(now, roles=["dpo"]), kid="k9"))],
            "unsigned": [_bearer(unsigned(claims(now, roles=["dpo"]), kid="k1"))],
            "two": [_bearer(good), _bearer(good)],
            "basic": [f"Authorization: Basic {good}"],
            "a header": ["X-Roles: dpo", "X-Forwarded-User: dpo"],
        }
        if what == "expired" and self._bad:
            return [_bearer(self._dice.choice(self._bad))]
        return shown.get(what, [])

    def masked(self, one: dict[str, Any]) -> dict[str, Any]:
        """A record in which some values are shown as a view masks them."""
        return {
            name: field_mask(_KINDS[name]).of(value)
            if name in _KINDS and isinstance(value, str) and self._dice.random() < 0.5
            else value
            for name, value in one.items()
        }


def _bearer(shown: str) -> str:
    return f"Authorization: Bearer {shown}"
