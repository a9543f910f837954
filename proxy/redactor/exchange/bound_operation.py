"""Operations ready to run: plan, collection and counters.

Made when rules load, read by every request.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from proxy.audit.services import AuditServices
from proxy.crypto.prf import either
from proxy.errors import Code, VaultError
from proxy.offload import BRIEF, is_long
from proxy.redactor.bodies.patches import PatchReader
from proxy.redactor.bodies.uploads import UPLOADS, read_upload
from proxy.redactor.bodies.xml_bodies import read_xml
from proxy.redactor.exchange.audit import ExchangeAudit
from proxy.redactor.exchange.unnamed_members import AnswerSample
from proxy.redactor.exchange.unnamed_parameters import UnnamedParameters
from proxy.redactor.exchange.vault_search import SearchRedaction
from proxy.redactor.guard import Guard
from proxy.redactor.message import Request
from proxy.redactor.passed_places import WriteAddress
from proxy.redactor.plan import OperationPlan, list_plan
from proxy.redactor.redact import BodyObject, ParsedBody, read_request
from proxy.redactor.rules import Entity, Operation, PatchKind, Verb
from proxy.redactor.search.search import SearchPlan
from proxy.redactor.views import FieldView, View
from proxy.telemetry import logs
from proxy.telemetry.metrics import MetricCell, Metrics
from proxy.vault.body import TokenizedValue
from proxy.vault.collection import Collection
from proxy.vault.proxied import NO_COVER, AnswerObject, Cover, OpenRow

#: answers to reads pass with tokens then, where the rule says so
_DOWN: Final = (Code.VAULT_DOWN, Code.AUDIT_DOWN)


class BoundOperation:
    """An operation ready to run: its plan, its collection, its counters.

    ``view``: what its callers see; ``None``: everything.
    """

    __slots__ = (
        *("_services", "_viewed", "address", "checks", "collection", "cover", "guard", "is_long"),
        *("lists", "notices", "answers", "plan", "planned", "fast_path"),
        *("protected", "read", "restored", "searching", "audit", "unnamed", "view"),
    )

    def __init__(
        self,
        plan: OperationPlan,
        collection: Collection,
        metrics: Metrics,
        audit: AuditServices,
        view: FieldView | None = None,
    ) -> None:
        self.plan = plan
        #: conditions of forks on the body
        self.read = _reader(plan)
        uploads = plan.request is not None and bool(plan.request.named & UPLOADS)
        #: whether a body takes long to read; rows and parts are not counted for that
        self.is_long: Callable[[bytes], bool] = bool if uploads else _long(plan)
        self.collection = collection
        #: where the answers are lists that can be restored page by page
        self.lists = list_plan(plan) if view is None or view.clear else None
        self.view = view
        self.cover = NO_COVER if view is None else _cover(view, collection, plan.operation)
        self.audit = ExchangeAudit(audit, collection.context.environment, plan.operation, view)
        self.notices = Notices(metrics, plan.operation)
        self.unnamed = UnnamedParameters(metrics, plan.operation)
        self.answers = AnswerSample(plan.operation)
        self._services = metrics, audit
        self._viewed: dict[View, BoundOperation] = {}
        self.planned = False  #: whether it was looked how its ordinary exchanges go
        self.fast_path: Any = None  #: what those need (``fast_path_plan``)
        watched = plan.operation.endpoint.on_error.guard != "off"
        self.guard = Guard(plan, self._elsewhere) if watched else None
        self.address = WriteAddress(plan.operation, self._elsewhere)
        entity = plan.operation.entity
        writes = plan.operation.verb in (Verb.CREATE, Verb.UPDATE)
        #: checks of a request's values by field
        self.checks = {
            name: one.check for name, one in entity.fields.items() if writes and one.check
        }
        rule = plan.operation.request.search
        self.searching = (
            None if rule is None else SearchRedaction(SearchPlan(plan.operation, rule), collection)
        )
        self.protected = _cells(metrics, "domicile_protected_values_total", entity)
        self.restored = _cells(metrics, "domicile_restored_values_total", entity)
        if view is not None:
            masked = _cells(metrics, "domicile_masked_values_total", entity)
            self.restored.update((name, masked[name]) for name in view.masks)

    def under(self, view: View | None) -> "BoundOperation":
        """The same for callers of that view, which is bound once."""
        if view is None:
            return self
        bound = self._viewed.get(view)
        if bound is None:
            fields = field_view(view, self.plan.operation.entity)
            bound = BoundOperation(self.plan, self.collection, *self._services, fields)
            bound.notices, bound.unnamed, bound.answers = self.notices, self.unnamed, self.answers
            bound.guard, bound.address = self.guard, self.address
            self._viewed[view] = bound
        return bound

    def lock_order(self, ident: str) -> tuple[str, bytes]:
        """Return the lock order of a record.

        A request that changes several records locks them in this order, so that no two requests
        wait for each other.
        """
        digests = either((self.collection.key_hash(ident),))
        return self.plan.operation.entity.schema.name, min(digests)

    def _elsewhere(self, field: str, where: str) -> None:
        self.collection.observe("elsewhere")
        self.notices.elsewhere(field, where)

    async def decide(self, reconciling: Awaitable[None]) -> None:
        """Wait for the reconciliation of an answer; without the vault, the next answer decides."""
        try:
            await reconciling
        except VaultError as error:
            if error.code is not Code.VAULT_DOWN:
                raise
            self.collection.observe("late")

    def permit(self, *, writes: bool) -> None:
        """Raise ``VaultError(AUDIT_DOWN)`` unless the log works, or a read may show tokens."""
        try:
            self.audit.sink.ready()
        except VaultError as error:
            if writes:
                raise
            self.pass_with_tokens(error)

    def pass_with_tokens(self, error: VaultError) -> None:
        """Let the answer pass with its tokens, unless the rule names a status for its place."""
        if error.code not in _DOWN or not self.plan.operation.passes_tokens:
            raise error
        self.collection.observe("unrestored")


def field_view(view: View, entity: Entity) -> FieldView:
    """Return the view of the fields of an entity."""
    return FieldView(view, entity.name, {name: one.mask for name, one in entity.fields.items()})


def _reader(plan: OperationPlan) -> Callable[[Request], ParsedBody | None]:
    patch = plan.operation.request.patch
    if plan.request is not None and plan.request.named & UPLOADS:
        return partial(read_upload, plan)
    if plan.request is not None and plan.request.xml is not None:
        return partial(read_xml, plan)
    if patch in (None, PatchKind.MERGE):
        return partial(read_request, plan)
    return PatchReader(plan.operation, patch).read


def _long(plan: OperationPlan) -> Callable[[bytes], bool]:
    """Whether a body takes long to read; the content of members that no rule names takes none."""
    body = plan.request
    if body is None or body.selection is None or not body.outline.flat or body.texts:
        return is_long
    few = body.selection.has_few_members
    return lambda text: is_long(text) and not (len(text) <= BRIEF and few(text))


def _cover(view: FieldView, collection: Collection, operation: Operation) -> Cover:
    """Return the fields that a view covers among those an operation writes.

    A writer of a value who sees its same-value token can compare that with stored ones. A create
    that shows only masks, also in errors, offers nothing to compare.
    """
    fields = view.hidden | view.masks.keys()
    masked = (
        operation.verb is Verb.CREATE and operation.endpoint.on_error.upstream_not_2xx == "scan"
    )
    compared = view.hidden if masked else fields
    same = {name for name, tokenizer in collection.tokenizers.items() if tokenizer.same}
    return Cover(fields, view.masks, compared & same)


def hidden(operation: Operation, names: Iterable[str]) -> VaultError:
    """Return the refusal of a request whose answer would reveal hidden values."""
    return VaultError(
        Code.FIELD_HIDDEN,
        f"{operation.label} searches by or compares {', '.join(names)}, which the view of the "
        "caller does not show clear: whether a value is there stays hidden, too.",
    )


def _cells(metrics: Metrics, name: str, entity: Entity) -> dict[str, MetricCell]:
    return {field: metrics.cell(name, entity.name, field) for field in entity.fields}


def count(cells: Mapping[str, MetricCell], counts: Mapping[str, int]) -> None:
    """Count values of each field."""
    for name, number in counts.items():
        cells[name].value += number


# Findings about an application's answers that its operator has to know: counted, and logged with
# the field's name.
#
# There are four. An update in doubt whose value has the token of the value before it: no answer can
# tell which of the two the application kept. A token that returns changed: an application that
# lower-cases, cuts or trims breaks every token. A create that is answered without an id: its values
# wait for an answer that shows them. And an id that is given twice.


_log = logs.logger("rules")

_UUID: Final = re.compile("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_SIGNS: Final = re.compile(r"[\W_]+")

#: Changes of an application to a token, and their remedies.
_CASE: Final = "it changes letter case: give the field the token shape lower, numeric or uuid"
_CUT: Final = (
    "it cuts off a part: give the field a shorter token shape, such as lower, or a template as "
    "long as its column"
)
_TRIMMED: Final = (
    "it drops spaces or signs: give the field a token shape of letters and digits, such as "
    "opaque or lower"
)
_OTHER: Final = (
    "it answers with a text of its own: give the field a token shape that it takes as it is"
)

#: The fewest characters of a token that make a part of it more than chance.
_PART: Final = 4


class Notices:
    """Notices of one operation: counted each time, logged once a field and reason."""

    __slots__ = (*("_entity", "_logged", "_metrics", "_operation", "_reads", "hides", "scattered"),)

    def __init__(self, metrics: Metrics, operation: Operation) -> None:
        self._metrics = metrics
        self._operation = operation.label
        self._entity = operation.entity.name
        self._reads = operation.verb is Verb.READ
        hides = operation.endpoint.on_error.untold_token == "hide"
        self.hides = self._reads and hides  #: whether texts that an id would tell are not shown
        self.scattered = operation.entity.scattered  #: fields that an id does not tell
        self._logged: set[tuple[str, ...]] = set()  #: events, or fields with reasons

    def nameless(self) -> None:
        """A create was taken, and its answer tells no id."""
        if self._is_first("nameless"):
            _log.warning(
                "the application answers a create without the id of its record: the values are "
                "kept, and shown once an answer shows a token that tells the record; until then it "
                "shows tokens, and no search of the vault finds it; if the answer holds the id, "
                "say where: response: "
                '{id: $.id} for a member, {id: "header Location /path/{id}"} for a header field; '
                'else let the application send a field of its own: {id: "header X-Record {id}"}',
                operation=self._operation,
                entity=self._entity,
            )

    def displaced(self) -> None:
        """A new record was given the id of another one that the vault has."""
        if self._is_first("displaced"):
            _log.warning(
                "a create was answered with the id of a record that the vault has: the values "
                "before stay with the new ones until an answer shows what the record has; it is "
                "meant where the rules write an update without an id as a create (PATCH /me)",
                operation=self._operation,
                entity=self._entity,
            )

    def other_id(self, collection: Collection, item: AnswerObject, record: OpenRow | None) -> None:
        """Tell of a record that the vault knows by another kind of id than the answer shows."""
        logged = ("other_id",) in self._logged
        if logged or item.id is None or record is None or record.row.key is None:
            return
        if record.row.key == collection.key_hash(item.id):  # nearly always
            return
        key = collection.sealer.open_key(record.row)
        if key is None or _kind_of_id(key) == _kind_of_id(item.id):
            return
        if self._is_first("other_id"):
            _log.warning(
                "an entity has two kinds of id: the vault knows a record by the one that its "
                "create answered with, and this operation names it by the other, so updates and "
                "deletes miss it; have all operations name one of them",
                operation=self._operation,
                entity=self._entity,
                reason=f"{_kind_of_id(key)} and {_kind_of_id(item.id)}",
            )

    def untold(self, collection: Collection, fields: Iterable[str]) -> None:
        """Tell of fields whose tokens an answer to a read shows without the ids that tell them."""
        for field in sorted(fields) if self._reads else ():
            collection.observe("untold")
            if not self._is_first("untold", field):
                continue
            _log.warning(
                "an answer shows objects without their ids, by which alone the token of the field "
                "is told: no value is shown, or the token stays and looks like one; have the "
                "application answer with the id, refuse the parameter that leaves it out, or give "
                "the field the token opaque; in a page, name its head under columns, and one of a "
                "column that shows whose row it is",
                operation=self._operation,
                entity=self._entity,
                field=field,
            )

    async def undecided_by(self, reconciling: Awaitable[set[str]]) -> None:
        """As ``undecided``, of the fields that it gives."""
        self.undecided(await reconciling)

    def undecided(self, fields: Iterable[str]) -> None:
        """Updates of these fields are in doubt for good: both values stay, the old one is shown."""
        for field in sorted(fields):
            self._metrics.cell("domicile_undecided_updates_total", self._entity, field).value += 1
            _log.warning(
                "an update is in doubt and its old and new value have one token: both are kept, "
                "the old one is shown; "
                "write the field again to decide it",
                operation=self._operation,
                entity=self._entity,
                field=field,
            )

    def elsewhere(self, field: str, where: str) -> None:
        """A value that was swapped for its token left elsewhere in its request."""
        if self._is_first(field, where):
            _log.warning(
                "a value that was swapped leaves elsewhere in the same request: leave it out "
                "there, or name that place in the rule",
                operation=self._operation,
                entity=self._entity,
                field=field,
                source=where,
            )

    def altered(self, field: str, returned: Sequence[str], sent: Sequence[str]) -> None:
        """The answer to a write shows a field with neither its old nor its new token."""
        self._metrics.cell("domicile_altered_tokens_total", self._entity, field).value += 1
        reason = _reason(returned, sent)
        if self._is_first(field, reason):
            _log.warning(
                "the application changes the tokens that it is sent: values of the field are not "
                "restored",
                operation=self._operation,
                entity=self._entity,
                field=field,
                reason=reason,
            )

    def _is_first(self, *about: str) -> bool:
        """Whether this was not logged before; it is from now on."""
        first = about not in self._logged
        self._logged.add(about)
        return first


def _kind_of_id(ident: str) -> str:
    if ident.isdigit():
        return "number"
    return "UUID" if _UUID.fullmatch(ident) else "word"


def _reason(returned: Sequence[str], sent: Sequence[str]) -> str:
    for text in returned:
        for token in sent:
            if text.casefold() == token.casefold():
                return _CASE
            if _SIGNS.sub("", text).casefold() == _SIGNS.sub("", token).casefold():
                return _TRIMMED
            if len(text) >= _PART and text.casefold() in token.casefold():
                return _CUT
    return _OTHER


def stored_before(
    item: BodyObject, tokens: Mapping[str, Sequence[TokenizedValue]]
) -> dict[str, int]:
    """Count the stored values before those that an object appends, by field."""
    fresh = Counter(
        spot.field
        for spot in item.spots
        if not spot.transient and spot.value is not None and (spot.value.text or spot.value.json)
    )
    return {name: len(tokens.get(name, ())) - fresh[name] for name in item.appended}
