"""A rule set bound to a vault, swapped as a whole when rule files change."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import cast

from proxy.audit.services import AuditServices
from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import RECORDS_SCHEMA, Field, Schema, Storage
from proxy.redactor.cookies import CookieField, with_tokens
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.carriers import special_exchange
from proxy.redactor.exchange.envelope import EnvelopeExchange
from proxy.redactor.exchange.fast_path_plan import FastPathPlan, fast_path_plan
from proxy.redactor.exchange.fork_exchange import AnyExchange, ForkExchange
from proxy.redactor.exchange.list_answers import ListExchange
from proxy.redactor.exchange.matcher import (
    CurrentRules,
    Matcher,
    carries,
    cookies_in,
    holds_address,
    holds_state,
    matcher_parts,
)
from proxy.redactor.exchange.mixins import viewed
from proxy.redactor.exchange.parts_exchange import PartsExchange, every_plan, join_parts
from proxy.redactor.exchange.request_tokens import cookie_token
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.unnamed_parameters import UnnamedArguments
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.rules import Endpoint, Entity, FieldRule, Match, Operation, PassRule, RuleSet
from proxy.redactor.views import View
from proxy.telemetry.metrics import Metrics
from proxy.vault.collection import Collection, TableSpec
from proxy.vault.proxied import Hosted
from proxy.vault.schemas import Catalog
from proxy.vault.vault import Vault

# Whether what rules keep among records (``schema: records``) may be kept as the settings have it.


def unfit_fields(entities: Sequence[Entity], schema: Schema) -> tuple[Detail, ...]:
    """The fields that the schema keeps otherwise than the rules say: entity and name of each."""
    return tuple(
        Detail(f"{entity.name}.{name}", f"is kept as {stored_as}, {text}")
        for entity in entities
        for name, stored_as in (entity.kept_as or {}).items()
        if (text := _unfit(schema.field(stored_as), entity.fields[stored_as]))
    )


def refuse_unfit(entities: Sequence[Entity], schema: Schema) -> None:
    """Raise ``VaultError(BAD_RULES)`` where there is such a field."""
    if faults := unfit_fields(entities, schema):
        raise VaultError(
            Code.BAD_RULES,
            "Rules keep values in keys of records that the settings keep otherwise.",
            faults,
        )


def _unfit(field: Field, rule: FieldRule) -> str:
    """Explain why a value must not be stored in the field; empty if it may."""
    if field.partial_match:
        return (
            "of which records.partial_match lets parts be searched for, and those of what rules "
            "collect are not: take another key"
        )
    if field.storage is Storage.INDEXED and not rule.in_clear:
        return (
            "which can be read in the vault's own table: write 'stored: plain' beside it to "
            "accept that, or take another key"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Runtime(Matcher):
    """Compiled rules with their router and collections."""

    vault: Vault
    joined: Mapping[int, BoundOperation]  #: by identity of the operation
    graphs: Mapping[int, UnnamedArguments]
    collections: Mapping[str, Collection]  #: by the names of their schemas

    async def redact_headers(
        self, endpoint: Endpoint, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        """The fields of any request to the endpoint with tokens in place of the values in addresses
        that they hold, and in cookies that its rules name.

        The same where none is there; a cookie whose value has no token is left out.
        """
        if endpoint.searched:
            headers = await self.readdress_referer(host, headers)
        if endpoint.cookies:
            headers = await with_tokens(endpoint.cookies, headers, self._cookie_token)
        return headers

    async def _cookie_token(self, at: CookieField, text: str | None) -> str | None:
        collection = self.collections.get(at.schema)
        if collection is None or at.field not in collection.declared:
            return None  # these rules are newer than those that matched the request
        if text is not None:
            with suppress(VaultError):
                return await cookie_token(collection, at.field, text)
        collection.observe("cookie_dropped")
        return None

    async def readdress_referer(
        self, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        """The fields of a request with tokens in place of the values in addresses that they hold,
        and without the state of a page; the same if there are none.
        """
        if not carries(headers, self.sign):
            return headers
        return tuple(
            [
                (name, await self._readdressed(host, (name, value)))
                if holds_address(name, value, self.sign)
                else (name, value)
                for name, value in headers
                if not holds_state(name, value, self.sign)
            ]
        )

    async def _readdressed(self, host: str, field: tuple[bytes, bytes]) -> bytes:
        address = self.address(host, field)
        if address is None:
            return field[1]
        rule = address.rule
        if rule is None or rule.branches or rule.graph or rule.parts:
            return address.bare
        searching = self.joined[id(rule)].searching
        if searching is None:
            return field[1]
        target = await searching.redact_target(address.target)
        return address.before + target[address.added :]

    def exchange(self, match: Match, view: View | None = None) -> AnyExchange:
        """Return a new exchange for a matched request of a caller, by the rules that matched it;
        ``view``: its visibility.
        """
        operation, rules = match.operation, cast("Runtime", match.scope)
        if operation.branches:
            fork, of = rules.forks[id(operation)], (match.params, rules)
            return ForkExchange(fork, lambda one: rules.exchange(Match(one, *of), view))
        if operation.parts:
            matches = [Match(one, match.params, rules) for one in operation.parts]
            parts = [cast("RuleExchange", rules.exchange(one, view)) for one in matches]
            return PartsExchange(matches, rules.joined, parts)
        if operation.envelope is not None:
            return EnvelopeExchange(operation, rules, view)
        if operation.graph:
            from proxy.redactor.exchange.graph_exchange import GraphExchange

            return GraphExchange(rules.graphs[id(operation)], rules.joined, view, rules.vault)
        joined = rules.joined[id(operation)]
        if view is not None:
            joined = joined.under(view)
        if operation.response.special:
            return special_exchange(joined, match, rules)
        kind = RuleExchange if joined.lists is None else ListExchange
        if joined.view is not None:
            kind = viewed(kind, joined)
        return kind(joined, match, rules.vault)

    def branch(self, match: Match, request: Request) -> Match | PassRule:
        """The match of the very operation that a whole request is for."""
        fork = self.forks.get(id(match.operation))
        rule = fork.by_body(request) if fork is not None else match.operation
        return rule if isinstance(rule, PassRule) else Match(rule, match.params, self)


class VaultRules(CurrentRules[Runtime]):
    """The rules in force before a vault of this process."""

    exchange = property(attrgetter("runtime.exchange"))

    async def redact_headers(
        self, endpoint: Endpoint, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        return await self.runtime.redact_headers(endpoint, host, headers)

    def fast_path(
        self, match: Match, headers: RawHeaders, view: View | None = None
    ) -> FastPathPlan | None:
        """Plan of the ordinary exchanges of an operation, by the rules of this match."""
        runtime, endpoint = cast("Runtime", match.scope), match.operation.endpoint
        if (endpoint.searched and carries(headers, runtime.sign)) or cookies_in(endpoint, headers):
            return None
        joined = runtime.joined.get(id(match.operation))
        if joined is None or bool(endpoint.views) is not (view is not None):
            return None
        return fast_path_plan(joined.under(view), runtime.vault, headers)


def recipe(entity: Entity) -> TableSpec:
    """Return the vault's specification of an entity's table."""
    shapes = {name: field.shape for name, field in entity.fields.items()}
    return TableSpec(entity.schema, shapes, entity.expires, entity.addressed, entity.keeps)


async def bind_rules(
    rules: RuleSet,
    vault: Vault,
    metrics: Metrics,
    audit: AuditServices,
    catalog: Catalog | None = None,
) -> Runtime:
    """Make a rule set ready to serve: tables exist, selectors are compiled.

    Raises ``VaultError``; the active rules then stay.

    With a ``catalog``, proxied records can be searched over the vault's own interface; a name that
    is taken by a schema there is refused (``BAD_RULES``).
    """
    collections = await _collections(rules, vault, catalog)
    runtime = _joined(rules, collections, vault, metrics, audit)
    if catalog is not None:
        own = [collections[one.schema.name] for one in rules.entities if one.kept_as is None]
        await catalog.take_rules(own)
        for collection in own:
            await catalog.filling.begin(collection)
    return runtime


async def bind_earlier(
    rules: RuleSet, vault: Vault, metrics: Metrics, audit: AuditServices, catalog: Catalog
) -> Runtime:
    """Make a rule set ready that fronts still use, beside the one in force, which stays.

    Raises as ``bind_rules``.
    """
    collections = await _collections(rules, vault, catalog, earlier=True)
    for one in rules.entities:
        if one.kept_as is None:
            catalog.filling.join(collections[one.schema.name])
    return _joined(rules, collections, vault, metrics, audit)


def _joined(
    rules: RuleSet,
    collections: Mapping[str, Collection],
    vault: Vault,
    metrics: Metrics,
    audit: AuditServices,
) -> Runtime:
    joined = {
        id(plan.operation): BoundOperation(
            plan, collections[plan.operation.entity.schema.name], metrics, audit
        )
        for plan in every_plan(rules.operations)
    }
    for operation in rules.operations:
        if operation.parts:
            join_parts(metrics, [joined[id(part)] for part in operation.parts])
    graphs = {id(one): _arguments(metrics, one) for one in rules.operations if one.graph}
    return Runtime(*matcher_parts(rules), vault, joined, graphs, collections)


def _arguments(metrics: Metrics, operation: Operation) -> UnnamedArguments:
    from proxy.redactor.graphql.requests import GraphReader

    return UnnamedArguments(metrics, operation, GraphReader(operation))


async def _collections(
    rules: RuleSet, vault: Vault, catalog: Catalog | None, *, earlier: bool = False
) -> dict[str, Collection]:
    """Return the collection of each entity: a table of its own, or the record-based family's."""
    if catalog is not None:
        names = frozenset(entity.schema.name for entity in rules.entities)
        catalog.refuse_taken(names)
        if not earlier:
            await catalog.refuse_renamed(
                names,
                [one.schema for one in rules.entities if not (one.names_schema or one.kept_as)],
            )
        await _fitting(rules.entities, catalog)
    return {
        entity.schema.name: await vault.collection(recipe(entity), earlier=earlier)
        if catalog is None or entity.kept_as is None
        else Hosted(recipe(entity), entity.name, catalog.host(RECORDS_SCHEMA))
        for entity in rules.entities
    }


async def _fitting(entities: Sequence[Entity], catalog: Catalog) -> None:
    """Wait for a migration of record keys that the rules need.

    Raises ``VaultError(BAD_RULES)`` for a key that the settings keep otherwise than the rules say.
    """
    if all(entity.kept_as is None for entity in entities):
        return
    change = catalog.declared(RECORDS_SCHEMA).change
    if change is not None and unfit_fields(entities, change.other) + unfit_fields(
        entities, catalog.records(RECORDS_SCHEMA).schema
    ):
        await catalog.settled(RECORDS_SCHEMA)
    refuse_unfit(entities, catalog.records(RECORDS_SCHEMA).schema)
