"""Routes of requests whose exchange may be ordinary (``fast_path_request``): what their heads have
in common is found once for all that have the same fields.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.gateway import headers as rewriting
from proxy.gateway.forwarded import CallerFields
from proxy.gateway.ports import ActiveRules, OrdinaryPlan
from proxy.net import entity_tags
from proxy.net.hop_headers import RequestFields, request_fields
from proxy.net.http1.head import RequestHead
from proxy.net.reply import UpstreamAddress
from proxy.net.response import RequestContext
from proxy.redactor.content_coding import field
from proxy.redactor.message import BEFORE_PARAMETERS, Request
from proxy.redactor.rules import Match, Verb
from proxy.redactor.views import View

_CREATE, _READ = Verb.CREATE, Verb.READ  # looked up several times slower in it


class _Plans(dict[View | None, OrdinaryPlan | None]):
    """Plans of an operation by the view of the caller, each asked for once."""

    def __init__(self, plan: Callable[[View | None], OrdinaryPlan | None]) -> None:
        self._plan = plan

    def __missing__(self, view: View | None) -> OrdinaryPlan | None:
        plan = self[view] = self._plan(view)
        return plan


class FastPathRoute(NamedTuple):
    """Common parts of the requests of one head whose exchange is ordinary."""

    plans: _Plans
    match: Match
    fields: RequestFields
    address: UpstreamAddress
    head: bytes  #: for the application, but for the length
    viewed: bool  #: other callers may be shown another answer
    if_none_match: bytes | None  #: entity tags of answers to a read that its caller has
    marks: Sequence[bytes]  #: of which a changed record must have one


class _SameFields(NamedTuple):
    """Findings about the fields of a head and an operation."""

    edition: object  #: of the rules
    match: Match
    plans: _Plans | None  #: ``None``: no exchange is ordinary
    fields: RequestFields
    lines: bytes  #: the fields for the application
    if_none_match: bytes | None  #: see ``FastPathRoute``
    marks: Sequence[bytes]


def fast_path_route(
    rules: ActiveRules,
    match: Match,
    incoming: RequestContext,
    address: UpstreamAddress,
    of_caller: CallerFields | None,
) -> FastPathRoute | None:
    """Route of the requests of this head; ``None``: their exchange is not ordinary."""
    head = incoming.head
    target = head.target
    if head.method == "HEAD" or BEFORE_PARAMETERS.search(target) is not None:
        return None
    key = id(match.operation), head.method
    same: _SameFields | None = head.common.get(key)
    if (
        same is None
        or same.edition is not rules.edition
        or same.match.operation is not match.operation
    ):
        fields = request_fields(head)
        fields = fields if of_caller is None else of_caller.alike(incoming, fields, address)
        same = head.common[key] = _same_fields(rules, match, head, address, fields)
    if same.plans is None:
        return None
    start = b"%b %b HTTP/1.1\r\n%b" % (head.method.encode("ascii"), target, same.lines)
    viewed = bool(match.operation.endpoint.views)
    common = same.plans, match, same.fields, address, start, viewed
    return FastPathRoute(*common, same.if_none_match, same.marks)


def _same_fields(
    rules: ActiveRules,
    match: Match,
    head: RequestHead,
    address: UpstreamAddress,
    fields: RequestFields,
) -> _SameFields:
    headers = tuple(fields.headers)
    fields = fields._replace(headers=headers)
    plans: _Plans | None = None
    operation = match.operation
    # the general way looks for earlier attempts
    again = operation.verb is _CREATE and field(head.headers, b"idempotency-key") is not None
    carries = (operation.verb is _READ) is not bool(head.length)
    if carries and not again and rewriting.is_usual(head, headers):
        plans = _Plans(lambda view: rules.fast_path(match, headers, view))
        if all(plans[view] is None for view in operation.endpoint.views or (None,)):
            plans = None  # whoever calls
    request = Request(head.method, head.target, headers, b"")
    begun = rewriting.request_head(request, None, address, body=bool(head.length), target=False)
    lines = begun.partition(b"\r\n")[2][:-2]
    reads = head.method in rewriting.READS
    if_none_match = field(head.headers, b"if-none-match") if reads else None
    conditions = [field(head.headers, name) for name in (b"if-match", b"if-unmodified-since")]
    marks = entity_tags.expected_marks(*conditions)
    return _SameFields(rules.edition, match, plans, fields, lines, if_none_match, marks)
