"""Fine-grained access: the customer's filter endpoint decides about each record.

It decides which records the person behind a request may see or change.

The exchange is that of the interface specification. We send ``{"action": …, "type": schema, primary
key field: [keys]}`` with the token that the caller brought in ``x-client-auth``; the endpoint
answers ``{primary key field: [keys]}`` with those that are allowed, or ``{primary key field:
"*"}``. Whatever else it answers allows nothing, and neither does no answer: the request fails.

Questions and the meaning of answers, without HTTP; ``net.outbound`` sends them.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.rights import denied

#: The field of a request that the token for the filter endpoint comes in.
CLIENT_AUTH_HEADER: Final = "x-client-auth"

#: Name of an action in the exchange.
ACTIONS: Final = {
    Act.READ: "v1.restapi.read",
    Act.WRITE: "v1.restapi.write",
    Act.DELETE: "v1.restapi.delete",
}

#: The keys that are allowed; ``None``: all that were asked for.
Allowed = frozenset[str] | None

#: The name of the property with the keys, for records without a primary key field.
_KEY: Final = "record_key"

#: Characters of a bearer token (RFC 6750, section 2.1), and a bound for its length.
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]{1,8192}=*)", re.ASCII | re.IGNORECASE)

_encode = msgspec.json.Encoder().encode
_object: Final = msgspec.json.Decoder(dict[str, list[str] | str]).decode


class AclTransport(Protocol):
    """Transport that sends questions to a filter endpoint."""

    async def ask(self, url: str, token: str, question: bytes) -> bytes:
        """The body of the endpoint's answer.

        Raises ``VaultError``: FILTER_ENDPOINT_LATE without an answer in time, FILTER_ENDPOINT_WRONG
        without one that counts.
        """


def question(act: Act, schema: str, primary: str, keys: Sequence[str]) -> bytes:
    """The body of the request: exactly three properties.

    Raises ``VaultError`` as ``wrong`` where names would fall together.
    """
    if primary in ("action", "type"):
        raise wrong("the primary key field has the name of another property of the question")
    return _encode({"action": ACTIONS[act], "type": schema, primary: list(keys)})


def parse_answer(body: bytes, primary: str) -> Allowed:
    """Parse an answer of the filter endpoint; ``None`` if it allows every key.

    Raises ``VaultError`` (FILTER_ENDPOINT_WRONG) unless it has exactly the one property, once, of
    the right shape.
    """
    try:
        members = _object(body)
        if members.keys() == {primary}:
            json.loads(body, object_pairs_hook=_once)
    except (msgspec.MsgspecError, ValueError):
        raise wrong("its answer is not the JSON object that it has to be") from None
    if members.keys() != {primary}:
        raise wrong("its answer has other properties than the one it has to have")
    value = members[primary]
    if isinstance(value, list):
        return frozenset(value)
    if value != "*":
        raise wrong("its answer is neither an array of strings nor *")
    return None


def _once(pairs: list[tuple[str, object]]) -> None:
    """Readers of an object with a member twice may disagree (RFC 8259, section 4)."""
    if len(pairs) != 1:
        raise ValueError("a member stands there twice")


def client_auth(fields: Sequence[str]) -> str:
    """The token of the field's values.

    Raises ``VaultError`` (UNAUTHORIZED) unless there is one bearer token.
    """
    bearer = _BEARER.fullmatch(fields[0].strip(" \t")) if len(fields) == 1 else None
    if bearer is None:
        text = (
            "Has to be there once, as: Bearer, a space, and the token of whoever the records are "
            "for."
        )
        raise VaultError(
            Code.UNAUTHORIZED,
            "A policy of this client asks a filter endpoint about each record, in the name of "
            "the person that the request is for.",
            (Detail(CLIENT_AUTH_HEADER, text),),
        )
    return bearer[1]


class AclDecisions:
    """Decisions of the filter endpoint on records of one schema, cached for one request.

    No key is sent twice for one action.
    """

    def __init__(
        self, asker: AclTransport, url: str, token: str, schema: str, primary: str | None
    ) -> None:
        self._asker = asker
        self._url = url
        self._token = token
        self._schema = schema
        self._primary = primary or _KEY
        self._answers: dict[Act, dict[str, bool]] = {}

    async def allowed(
        self, act: Act, keys: Iterable[str], *, always: bool = False
    ) -> frozenset[str]:
        """Return the keys that the filter endpoint allows.

        Raises ``VaultError``: FILTER_ENDPOINT_LATE, FILTER_ENDPOINT_WRONG.

        ``always``: ask the endpoint even without keys, as after a search. An answer that failed
        only after hits, or came later, would reveal records that are not allowed.
        """
        wanted = dict.fromkeys(keys)
        was_asked = act in self._answers
        answers = self._answers.setdefault(act, {})
        fresh = [key for key in wanted if key not in answers]
        if fresh or (always and not was_asked):
            body = question(act, self._schema, self._primary, fresh)
            allowed_keys = parse_answer(
                await self._asker.ask(self._url, self._token, body), self._primary
            )
            answers.update((key, allowed_keys is None or key in allowed_keys) for key in fresh)
        return frozenset(key for key in wanted if answers[key])

    async def need(self, act: Act, keys: Iterable[str]) -> None:
        """Raise ``VaultError`` (ACCESS_DENIED) unless all of them are allowed.

        Else as ``allowed``.
        """
        wanted = frozenset(keys)
        if await self.allowed(act, wanted) != wanted:
            raise denied()


def wrong(reason: str) -> VaultError:
    """A failed exchange with a filter endpoint; ``reason`` says what it did, never what it said."""
    return VaultError(
        Code.FILTER_ENDPOINT_WRONG,
        f"The filter endpoint of the policy cannot be believed, so nothing is allowed: {reason}.",
    )


def timed_out(seconds: float) -> VaultError:
    """The failure of an exchange that took too long."""
    return VaultError(
        Code.FILTER_ENDPOINT_LATE,
        f"The filter endpoint of the policy did not answer within {seconds:g} s, so nothing is "
        "allowed.",
    )
