"""Searches by parameters of an address, members of a form, and places in a body or path.

Tokens replace their values. Where a rule says so the vault answers them: it finds the records, and
the application is sent their ids.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace as with_changes
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from proxy.errors import Code, Detail, VaultError
from proxy.model.query import KEY, AnyOf, Compares, Equals, Like, Op, Query, Test
from proxy.model.record import DEFAULTS, Record
from proxy.model.schema import Value
from proxy.offload import SMALL, in_thread, is_long
from proxy.redactor.exchange.request_tokens import SearchTokens
from proxy.redactor.message import Request
from proxy.redactor.request_rules import Parameter
from proxy.redactor.rules import Operation
from proxy.redactor.search.search import SearchPlan
from proxy.redactor.search.sought import (
    NOTHING_SOUGHT,
    Searched,
    SoughtQuestion,
    SoughtValue,
    order_keys,
    search_refused,
)
from proxy.telemetry import logs
from proxy.tokenization.normalize import folded, normalize, read_date
from proxy.vault.collection import Collection
from proxy.vault.records import Records, find_page, found_in_doubt

_log = logs.logger("redactor")

#: Records that one search may open to know which of them hold a part of a text, and bytes of those
#: that it finds.
CANDIDATES: Final = 5_000
FOUND_BYTES: Final = 64 * 2**20

#: Seconds after which a search is worth trying again while records are made ready for it.
_SOON: Final = 30

_OPS: Final = {"from": Op.GTE, "to": Op.LTE, "after": Op.GT, "before": Op.LT}


class SearchRedaction:
    """Redaction of the searches of one operation; made when rules load."""

    def __init__(self, plan: SearchPlan, collection: Collection) -> None:
        self.plan = plan
        self._collection = collection
        self._vault = VaultSearch(collection)

    async def redact(
        self, request: Request, permit: Callable[[set[str]], None]
    ) -> tuple[Request, SearchTokens]:
        """The request as the application may see it, and the tokens that it searches by.

        ``permit``: raises for fields that the caller may not search by; a returning token is no
        search. The vault is queried only after that. Raises ``VaultError``; then nothing may be
        sent.
        """
        plan, target = self.plan, self.plan.undropped(request.target)
        address, body, long = plan.address(target), NOTHING_SOUGHT, False
        if plan.in_body:
            long = len(request.body) > SMALL and is_long(request.body)
            parts = request.headers, request.body
            body = await in_thread(plan.body, *parts) if long else plan.body(*parts)
        tokens, ids = SearchTokens(self._collection), list[str]()
        if not (address.any or body.any):
            return request if target is request.target else replace(request, target=target), tokens
        if questions := [*address.questions, *body.questions]:
            permit({field for one in questions for field in one.fields})
        if values := [*address.every, *body.every]:
            await tokens.look_up([(one.field, one.value) for one in values])
            permit({one.field for one in values if not tokens.returns(one)})
        if questions:
            ids, tokens.questioned = await self._vault.ids(questions), True
        token_of, content = partial(self._token, tokens), request.body
        target = address.written(target, token_of, ids, mixed=True)
        if body.any:
            written = partial(body.written, content, token_of, ids, mixed=True)
            content = await in_thread(written) if long else written()
        if plan.mixes:
            tokens.mixed = frozenset([one.value for one in (*address.mixed, *body.mixed)])
        return replace(request, target=target, body=content), tokens

    async def redact_target(self, target: bytes) -> bytes:
        """Return the target of an earlier search with tokens in place of values.

        Values that cannot be replaced are removed.
        """
        try:
            address = self.plan.address(target)
            if address.lists or address.questions:
                target = target.partition(b"?")[0]
                address = Searched([one for one in address.values if one.end <= len(target)])
            tokens = SearchTokens(self._collection)
            await tokens.look_up([(one.field, one.value) for one in address.values])
            return address.written(target, tokens.token)
        except VaultError:
            return b"/" if self.plan.in_path else target.partition(b"?")[0]

    def _token(self, tokens: SearchTokens, one: SoughtValue) -> Value | None:
        """The token of a value; a misfit is reported by its place."""
        try:
            return tokens.token(one)
        except VaultError as error:
            if error.code is not Code.VALUE_UNFIT:
                raise
            misfit = one.field, one.source, error.message
            raise unfit_values(self.plan.operation, [misfit]) from None


#: The field of a value that its field's format refuses, the place, and why.
Misfit = tuple[str, str, str]


def unfit_values(operation: Operation, misfits: Sequence[Misfit]) -> VaultError:
    """The refusal of a request with these, each of which is logged."""
    for field, position, _ in misfits:
        _log.warning(
            "a value does not fit the token format of its field",
            operation=operation.label,
            field=field,
            source=position,
        )
    names = ", ".join(dict.fromkeys(field for field, _, _ in misfits))
    message = (
        f"A value does not fit the token format of its field ({names}); where such values are in "
        "order, the rule of the field says what they get: token: {shape: …, else: opaque}."
    )
    details = tuple(Detail(position, f"{field}: {text}") for field, position, text in misfits)
    return VaultError(Code.VALUE_UNFIT, message, details)


class VaultSearch:
    """Asks the vault for the records of one entity; made when rules load."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._records = Records(collection)
        self._limits = with_changes(DEFAULTS, candidates=CANDIDATES, page_bytes=FOUND_BYTES)

    async def ids(self, questions: Sequence[SoughtQuestion]) -> list[str]:
        """The ids of all records that answer each of the questions, in the order that they say.

        Raises ``VaultError``: SEARCH_REFUSED where it cannot be asked, TOO_BROAD where it finds
        more than the rule allows, OVERLOADED while records are made ready to be found, VAULT_DOWN.
        """
        self._refuse_unready(questions)
        tests = tuple(self._test(one) for one in questions if one.parameter.vault_fields)
        keys = [
            key
            for one in questions
            if not one.parameter.vault_fields
            for key in order_keys(one.parameter, ",".join(one.texts))
        ]
        send = questions[0].parameter.send
        most = send.most if send is not None else 0
        named = (*tests, Equals(KEY, (None,), negated=True))  # others cannot be sent
        page = await find_page(self._records, Query(named, limit=most), self._limits)
        records = list(page.records)
        if (unsure := self._collection.state.unsure) and tests:
            # the application may have refused what is live, and nobody finds the record by that
            found_rids = {record.rid for record in records}
            rids = [rid for rid in unsure if rid not in found_rids]
            records += await found_in_doubt(self._records, named, rids)
        self._refuse_unready(questions)  # new rules may have taken entries away meanwhile
        if max(page.total, len(records)) > most or page.cut:
            raise VaultError(
                Code.TOO_BROAD,
                f"The search finds more than {most} records, which is as many as are sent to the "
                "application; search for something more exact.",
            )
        for name, descending in reversed(keys):
            records = self._ordered(records, name, descending=descending)
        return [record.key for record in records if record.key is not None]

    def _refuse_unready(self, questions: Sequence[SoughtQuestion]) -> None:
        filling = self._collection.state.filling | self._collection.outdated
        if filling and any(filling & set(one.parameter.vault_fields) for one in questions):
            raise _not_ready()

    def _test(self, question: SoughtQuestion) -> Test:
        parameter = question.parameter
        alternatives = tuple(
            (self._alternative(parameter, name, how, text),)
            for text in question.texts
            for name, how in parameter.vault_fields.items()
        )
        return alternatives[0][0] if len(alternatives) == 1 else AnyOf(alternatives)

    def _alternative(self, parameter: Parameter, name: str, how: str, text: str) -> Test:
        field = self._collection.schema.field(name)
        if how == "partial":
            least, most = self._limits.search
            if not least <= len(folded(text)) <= most:
                raise search_refused(
                    parameter, f"a part of a text has {least} to {most} characters"
                )
            return Like((name,), text)
        value = text
        if field.kind == "date":
            day = read_date(text.strip())
            if day is None or day.either:
                raise search_refused(parameter, "it takes a date such as 1980-02-28")
            value = day.normal
        return Equals(name, (value,)) if how == "exact" else Compares(name, _OPS[how], value)

    def _ordered(self, records: Sequence[Record], name: str, *, descending: bool) -> list[Record]:
        """The records by one field; those without a value come last."""
        kind = self._collection.schema.field(name).kind
        having = [(record, value) for record in records if (value := _first(record, name))]
        having.sort(key=lambda pair: _rank(kind, pair[1]), reverse=descending)
        rest = [record for record in records if not _first(record, name)]
        return [*(record for record, _ in having), *rest]


def _first(record: Record, name: str) -> str:
    value: Any = record.fields.get(name)
    text = value[0] if isinstance(value, list) and value else value
    return "" if text is None else str(text)


def _rank(kind: str, text: str) -> tuple[int, Decimal, str]:
    """Return the sort key of a value of a kind: numbers by size, before all others."""
    if kind == "number":
        try:
            return 0, Decimal(text), ""
        except InvalidOperation:
            return 1, Decimal(), text
    return 0, Decimal(), normalize(kind, text) if kind == "date" else folded(text)


def _not_ready() -> VaultError:
    error = VaultError(
        Code.OVERLOADED,
        "The vault is still making records ready for this search; send the request again later.",
    )
    error.retry_after = _SOON
    return error
