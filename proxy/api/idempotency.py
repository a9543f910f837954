"""Requests with an ``Idempotency-Key``: carried out once, and answered again as they were the first
time.

The answer of a write is in the commit of the write. An operation that commits elsewhere (a schema,
a client) keeps its answer just after. An answer that is streamed is not kept: its request is a
read.

A stored answer goes in the commit that deletes a record which it shows. For a function that used
records, only the fact of its execution is stored, as its answer may contain any of them.

An answer is given again only to who would be shown it now: under the same rights as then, and where
these rights tell records apart (rows, a filter endpoint), only if the caller still finds every
record that the answer shows. Else it hears that the request was carried out.
"""

import re
from collections.abc import Sequence
from typing import Final

from proxy.api.attachments import check_repeated
from proxy.api.context import (
    PURPOSE_HEADER,
    Access,
    ApiHandler,
    ApiRequest,
    ApiResponse,
    IdempotencyRunner,
    Shows,
    Takes,
)
from proxy.auth.external_acl import CLIENT_AUTH_HEADER
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.storage.changes import ANY_ROW, Change
from proxy.vault.collection import Collection
from proxy.vault.idempotency import Answered, IdempotentRequest, Replies
from proxy.vault.records import all_visible

_NAME: Final = "Idempotency-Key"
_KEY: Final = re.compile(r"[!-~]{1,255}", re.ASCII)


def repeating(replies: Replies, system: Collection) -> IdempotencyRunner:
    """Build the runner of calls with a key; ``system`` stores answers that belong to no schema."""

    async def once(call: ApiRequest, handler: ApiHandler) -> ApiResponse:
        key = _key(call)
        collection = system
        if call.schema is not None and "/schemas/" not in call.operation.path:
            collection = call.records(call.schema).collection
        operation = call.operation
        scope = (call.principal.client, operation.method, operation.path, *call.path.values(), key)
        async with replies.once(collection, scope, _request(call)) as one:
            if one.gone:
                await _ask_anyway(call)
                raise _unseen()
            if one.replay is not None:
                _check_rights(call, one.replay)
                await _check_records(call, one.replay)
                if call.operation.takes is Takes.STREAM:
                    await check_repeated(call, one.replay)
                again = {**one.replay.headers, "Idempotent-Replayed": "true"}
                return ApiResponse(one.replay.status, one.replay.body, again)

            def keep(answer: ApiResponse, records: Sequence[Shows]) -> Sequence[Change]:
                rids = [record.rid for record in records] if answer.body else []
                return one.changes(
                    _answered(call, answer, records),
                    rids,
                    files=any(record.files for record in records),
                )

            call.keep = keep
            answer = await handler(call)
            if not one.in_commit and answer.stream is None and not call.waits:
                await _keep(call, one, answer, of_schema=collection is not system)
            return answer

    return once


async def _keep(
    call: ApiRequest, one: IdempotentRequest, answer: ApiResponse, *, of_schema: bool
) -> None:
    """Store an answer whose records are unknown.

    That of a function is not stored if it had to do with records.
    """
    if of_schema:
        await one.keep(_answered(call, answer), [ANY_ROW] if answer.body else [])
    else:
        await one.keep(
            None
            if call.operation.access is Access.CLIENT and call.audit.events
            else _answered(call, answer)
        )


def _key(call: ApiRequest) -> str:
    sent = call.request.headers.getall(_NAME)
    if len(sent) == 1 and _KEY.fullmatch(sent[0]):
        return sent[0]
    detail = Detail(_NAME, "Has to stand once, as 1 to 255 visible ASCII characters.")
    raise VaultError(Code.INVALID_INPUT, "The idempotency key cannot be used.", (detail,))


def _request(call: ApiRequest) -> bytes:
    """The bytes that a repetition must have in common: query and body.

    The content of an upload is compared when it is repeated.
    """
    query = "&".join(f"{name}={value}" for name, value in sorted(call.query.items()))
    sent = b"\0".join((query.encode(), call.body))
    if not call.principal.policies:
        return sent
    # a filter endpoint may have decided in the name of a person, and a policy by a purpose
    person, purpose = map(call.request.headers.get, (CLIENT_AUTH_HEADER, PURPOSE_HEADER))
    said = (person or "",) if purpose is None else (person or "", purpose)
    return b"\0".join((sent, *(one.encode("utf-8", "surrogateescape") for one in said)))


def _check_rights(call: ApiRequest, answered: Answered) -> None:
    """Raise ``VaultError`` (IDEMPOTENCY_CHECK_FAILED) where the caller's rights have changed."""
    if answered.mark != call.mark:
        raise VaultError(
            Code.IDEMPOTENCY_CHECK_FAILED,
            "The request was carried out, and the access policies of this client have changed "
            "since: request the records again.",
        )


async def _check_records(call: ApiRequest, answered: Answered) -> None:
    """Raise ``VaultError`` (IDEMPOTENCY_CHECK_FAILED) unless the caller sees every record shown.

    A caller without the right to read was answered with its own values. The records in a function's
    answer are unknown here. Raises ``VaultError`` as ``AclDecisions.allowed``, too.
    """
    if not answered.body or not call.standing.guarded or call.operation.access is not Access.CLIENT:
        return
    if call.schema is None:
        raise _unseen()
    records = call.records(call.schema)
    rights = records.rights
    if not rights.allows(Act.READ) or not (rights.rows or rights.acl):
        return
    if answered.shows is None or not await all_visible(records, answered.shows):
        raise _unseen()


async def _ask_anyway(call: ApiRequest) -> None:
    """Ask the filter endpoint although records are gone, so that its failure does not tell so.

    Raises as ``AclDecisions.allowed``.
    """
    if call.schema is not None and (gate := call.records(call.schema).gate) is not None:
        await gate.allowed(Act.READ, (), always=True)


def _unseen() -> VaultError:
    return VaultError(
        Code.IDEMPOTENCY_CHECK_FAILED,
        "The request was carried out, and its answer is not given again: it shows what has been "
        "deleted since, or what this client may not see any more. Request the records again.",
    )


def _answered(
    call: ApiRequest, answer: ApiResponse, records: Sequence[Shows] | None = None
) -> Answered:
    headers = dict(answer.headers)
    if answer.body:
        headers.setdefault("Content-Type", answer.media_type)
    keys = (
        None
        if records is None
        else tuple([record.key for record in records if record.key is not None])
    )
    return Answered(answer.status, headers, answer.body, call.mark, keys)
