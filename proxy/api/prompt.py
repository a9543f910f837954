"""Point reads and small finds that are answered as they arrive, without a task.

Everything is looked at before anything is done: who calls, what is asked, the records, the answer.
Whatever is unusual goes the general way (``dispatch``) from its beginning, which finds the same
once more: its checks, refusals, counts and audit lines are those of every request.
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from aiohttp import web

from proxy.api import request as bodies
from proxy.api import wire
from proxy.api.connection import LOCAL, NOT_LOCAL, DirectAnswer, direct_answer
from proxy.api.context import Access, ApiHandler, ApiResponse, Takes
from proxy.api.cors import ORIGIN
from proxy.api.dispatch import OperationDispatcher, count_by_client
from proxy.api.search import SMALL_PAGE, find_records, page_meta, read_record, whole_records
from proxy.api.whole_request import KnownHead, WholeRequest
from proxy.audit.events import AuditContext, reveal_parts
from proxy.edge.firewall import Mode
from proxy.errors import VaultError
from proxy.model.query import KEY
from proxy.model.rights import Principal
from proxy.net.server import FAILED
from proxy.telemetry import logs
from proxy.vault.records import Records, Render, page_at_once, question_of, record_at_once

_log = logs.logger("web")

#: Bytes of a body that is read here.
_SMALL: Final = 16 * 1024

#: Fields of a head with which a request goes the general way.
_CONDITIONS: Final = (ORIGIN, bodies.IF_MATCH, bodies.IF_NONE_MATCH)


class _Sender(NamedTuple):
    """The sender of a request, by its head."""

    token: str
    json: bool  #: whether a body is JSON, by its type


#: An answer that is ready to be sent, and the keys of the records in it.
_Reply = tuple[ApiResponse, Sequence[str]]

#: Looks for the answer to a request about these records; ``None``: the general way finds it.
#: Raises ``VaultError`` likewise.
_Look = Callable[["PromptReads", WholeRequest, Principal, Records], _Reply | None]


class PromptReads:
    """The requests of one operation that may be answered so."""

    def __init__(self, served: OperationDispatcher, look: _Look) -> None:
        self._served, self._look, self._services = served, look, served.services
        self._takes_json = served.operation.takes is Takes.JSON

    def __call__(self, request: WholeRequest) -> DirectAnswer | None:
        """The answer to a request, whose line is in the audit log; ``None``: nothing was done."""
        began = perf_counter()
        try:
            principal = self._caller(request)
            records = None if principal is None else self._records(request, principal)
            if principal is None or records is None:
                return None
            reply = self._look(self, request, principal, records)
        except VaultError:
            return None  # the general way comes to it, too
        except Exception:  # noqa: BLE001  # nothing was done yet: the general way may do better
            _log.exception("a request to the vault failed", method=request.method)
            return None
        if reply is None or reply[0].stream is not None:
            return None
        fields: dict[str, str] = {}
        try:
            answer = self._disclosed(reply, principal, records, fields)
        except VaultError as error:
            answer = self._refused(request, principal, error)
        except Exception:  # noqa: BLE001  # what nobody foresaw is told as such, and logged
            _log.exception("a request to the vault failed", method=request.method)
            answer = self._refused(request, principal, FAILED)
        sent, operation = direct_answer(answer, fields, ""), self._served.operation
        self._services.observe(operation.name, answer.status, perf_counter() - began)
        return sent

    def _caller(self, request: WholeRequest) -> Principal | None:
        """The sender of an ordinary request, who may see every record as it is."""
        services, head = self._services, request.head
        sender: _Sender | None = head.noted
        if sender is None:
            sender = head.noted = _sender(request.app, head)
        firewall, quotas = services.firewall, services.quotas
        principal_of = getattr(services.access, "principal_of", None)
        if (
            principal_of is None
            or not sender.token
            or (self._takes_json and not sender.json)
            or quotas.address is not None
            or not services.audit.prompt
            or (firewall is not None and firewall.mode is not Mode.OFF)
        ):
            return None
        principal: Principal | None = principal_of(sender.token)
        if principal is None or principal.policies or principal.roles:
            return None
        turns = quotas.concurrent
        return principal if turns is None or turns.free(principal.client) else None

    def _records(self, request: WholeRequest, principal: Principal) -> Records | None:
        space = self._services.spaces.get(principal.environment)
        if space is None:
            return None
        records = space.catalog.records(request.match_info["schema"])
        waits = records.primary is None or records.collection.store.at_once is None
        return None if waits else records

    def _disclosed(
        self, reply: _Reply, principal: Principal, records: Records, fields: dict[str, str]
    ) -> ApiResponse:
        """The answer, once it is counted and in the audit log; ``fields`` get what it tells."""
        services, client, space = self._services, principal.client, principal.environment
        if services.quotas.credential is not None:
            count_by_client(services, principal, fields)
        answer, keys = reply
        name = records.schema.name
        parts = reveal_parts(client, space, self._served.operation.name, name, records.field_names)
        services.audit.revealed(parts, (space, name, keys))
        return answer

    def _refused(
        self, request: WholeRequest, principal: Principal, error: VaultError
    ) -> ApiResponse:
        served = self._served
        audit = AuditContext(served.operation.name, served.kind, request.match_info)
        audit.by, audit.environment = principal.client, principal.environment
        return served.refused(audit, error)

    def find(self, request: WholeRequest, principal: Principal, records: Records) -> _Reply | None:
        """The page of a small question."""
        body, limits = request.body, self._services.limits
        if len(body) > min(self._served.limit, _SMALL):
            return None
        question = question_of(records, bodies.parse_json(body), limits)
        if question is None:
            return None
        asker, room = (principal.client, _form(records)), min(limits.page_bytes, SMALL_PAGE)
        page = page_at_once(records, question, asker, room)
        if page is None:
            return None
        (rendered, keys), query = page, question[0].query
        meta = wire.meta_of(
            len(keys), query.limit, query.offset, rendered.total, page_meta(rendered)
        )
        return wire.pages(rendered.records, meta), keys

    def read(self, request: WholeRequest, _caller: Principal, records: Records) -> _Reply | None:
        """The record with the key in the path."""
        key = request.match_info[KEY]
        opened = record_at_once(records, key, _form(records))
        if opened is None:
            return None
        record, text = opened
        return ApiResponse(200, text, {"ETag": records.entity_tag(record)}), (key,)


def _form(records: Records) -> Render[bytes]:
    """The renderer of records for callers who may see all of them."""
    primary = records.primary
    return whole_records(records.schema.name, None if primary is None else primary.name)


def _sender(app: web.Application, head: KnownHead) -> _Sender:
    """The sender by the head; no token where that has anything unusual."""
    fields, token = head.fields, ""
    sent = fields.getall("Authorization", ())
    local = app.get(LOCAL, NOT_LOCAL) is not NOT_LOCAL
    if len(sent) == 1 and not local and not any(name in fields for name in _CONDITIONS):
        scheme, _, rest = sent[0].partition(" ")
        token = rest.strip(" ") if scheme.lower() == "bearer" else ""
    try:
        bodies.check_media_type(fields, Takes.JSON.value)
    except VaultError:
        return _Sender(token, json=False)
    return _Sender(token, json=True)


#: The handlers whose requests may be answered so.
_LOOKS: Final[Mapping[ApiHandler, _Look]] = {
    find_records: PromptReads.find,
    read_record: PromptReads.read,
}


def prompt_reads(served: OperationDispatcher) -> PromptReads | None:
    """The object that answers requests of an operation so; ``None``: none of them."""
    operation = served.operation
    look = _LOOKS.get(operation.handler)
    usual = operation.access is Access.CLIENT and not operation.quiet
    return PromptReads(served, look) if look is not None and usual else None
