"""Vault parameters (``via: vault``): whether the vault can answer, and the way of comparing.

Also filters, of which parts are swapped, and parameters that are refused or dropped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from proxy.redactor.forks import each_operation
from proxy.redactor.load.entities import EntityDraft, needs_record
from proxy.redactor.load.ids import selects_many
from proxy.redactor.load.texts import known_field
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.yaml_tree import RuleFaults, did_you_mean
from proxy.redactor.request_rules import Attribute, Parameter, SearchRule, VaultQuestion
from proxy.redactor.rules import Entity, IdSource, Operation, Restore, Verb
from proxy.redactor.search.expressions import attribute_at, attribute_of
from proxy.redactor.search.sought import field_word
from proxy.tokenization import DEFAULT_SHAPE, SHAPES
from proxy.tokenization.base import Resolution

#: How a value is looked for that stands in an order, and the kinds that have one.
_RANGES = ("from", "to", "after", "before")
_ORDERED = ("date", "name", "text", "email")


def field_question(section: Section, entity: Entity, faults: RuleFaults) -> VaultQuestion:
    """Return the way of comparing for each field that a parameter names."""
    how: str = section.value("find", "")
    listed = [one for one in section.value("field", []) if one.value in entity.fields]
    for item in listed:
        _check_findable(item, how, entity, faults)
    return VaultQuestion({one.value: how or _widest(entity, one.value) for one in listed})


def _widest(entity: Entity, name: str) -> str:
    return "partial" if "partial" in entity.fields[name].find else "exact"


def _check_findable(item: PlacedValue, how: str, entity: Entity, faults: RuleFaults) -> None:
    rule = entity.fields[item.value]
    needed = "range" if how in _RANGES else how or "exact"
    if needed not in rule.find and not (needed == "exact" and "partial" in rule.find):
        faults.add(
            item.at,
            f"the vault cannot be asked so for {rule.name}; write find: [{needed}] at the field "
            f"{rule.name} of {entity.name}",
        )
    elif needed == "range" and rule.kind not in _ORDERED:
        faults.add(
            item.at,
            f"values of the kind {rule.kind} stand in no order that means anything to people; "
            f"look for {rule.name} as a whole",
        )
    elif selects_many(rule.at):
        faults.add(item.at, f"{rule.name} has several values, and the vault finds the first alone")


def order_question(section: Section, entity: Entity, faults: RuleFaults) -> VaultQuestion:
    """The fields in whose order ids can be sent, and those for which it is refused."""
    for key in ("split", "find"):
        if key in section:
            faults.add(section.key(key), f"'{key}' means nothing to a parameter that says an order")
    order: dict[str, str] = {}
    orderless: dict[str, str] = {}
    for rule in entity.fields.values():
        sortable = (
            rule.in_clear and rule.kind in (*_ORDERED, "number") and not selects_many(rule.at)
        )
        words = dict.fromkeys(order_words(entity, rule.name), rule.name)
        (order if sortable else orderless).update(words)
    for word, field in application_names(section, entity, faults).items():
        (order if field in order.values() else orderless)[word] = field
    if not order:
        faults.add(
            section.key("via"),
            f"no field of {entity.name} has an order in the vault; write stored: plain at one, or "
            "refuse: always here",
        )
    return VaultQuestion(order=order, orderless=orderless)


def application_names(section: Section, entity: Entity, faults: RuleFaults) -> dict[str, str]:
    """The fields by further names, as ``field_word`` writes them, that an application has."""
    named: Mapping[str, PlacedValue] = section.value("fields", {})
    for item in named.values():
        if item.value is not None and item.value not in entity.fields:
            faults.add_once(item.at, f"{entity.name} has no field '{item.value}'")
    return {
        field_word(name): item.value for name, item in named.items() if item.value in entity.fields
    }


def refusing(
    name: str,
    section: Section,
    entity: Entity,
    faults: RuleFaults,
    others: Mapping[str, EntityDraft],
) -> Parameter | None:
    """A parameter that is refused or dropped, always or where it names fields.

    ``others``: the entities of the file; ``customer.last_name`` is a field of one of them.
    """
    word = "refuse" if "refuse" in section else "drop"
    check_lone(name, word, section, faults, "fields")
    listed: list[PlacedValue] = [one for one in section.value(word, []) if one.value is not None]
    always = [one for one in listed if one.value == "always" and "always" not in entity.fields]
    if always and len(listed) > 1:
        faults.add(always[0].at, "'always' stands alone; the fields beside it mean nothing")
    unwanted: dict[str, str] = {}
    for one in listed:
        owner, _, field = one.value.rpartition(".")
        if owner and owner not in others:
            faults.add(one.at, f"there is no entity '{owner}'; {did_you_mean(owner, others)}")
            continue
        holder = others[owner].entity if owner else entity
        if one not in always and known_field(field, one, holder, faults):
            unwanted |= dict.fromkeys(order_words(holder, field), one.value)
    for spelled, field in application_names(section, entity, faults).items():
        if field in unwanted.values():
            unwanted[spelled] = field
    dropped = word == "drop"
    return (
        Parameter(name, refused=bool(always), unwanted=unwanted, dropped=dropped)
        if listed
        else None
    )


def order_words(entity: Entity, field: str) -> set[str]:
    """The names by which an order names a field: its own, and that of its member."""
    last = [step for step in entity.fields[field].at if isinstance(step, str)][-1:]
    return {field_word(word) for word in (field, *last)}


def other_field(section: Section, field: str, entity: Entity, faults: RuleFaults) -> str | None:
    """The field of values that are no mail addresses; empty where they pass."""
    item = section.items["else"]
    if entity.fields[field].kind != "email" or "send" in section or "mixed" in section:
        text = (
            "'else' tells values with an '@' from others, so the field beside it is of the kind "
            "email, without 'send' and 'mixed'"
        )
        faults.add(section.key("else"), text)
    elif item.value == "pass" and "pass" not in entity.fields:
        return ""
    elif item.value is not None and known_field(item.value, item, entity, faults):
        if not has_same_tokens(entity, item.value):
            faults.add(item.at, same_hint(entity, item.value, "this place"))
        return str(item.value)
    return None


def check_dropped(members: Mapping[str, PlacedValue], faults: RuleFaults) -> None:
    """Note members of a body that would be dropped: only an address can do without."""
    for name, item in members.items():
        if isinstance(item.value, Section) and "drop" in item.value:
            text = f"only a parameter of the address can be dropped; write refuse at '{name}'"
            faults.add(item.value.key("drop"), text)


def check_lone(name: str, word: str, section: Section, faults: RuleFaults, other: str = "") -> None:
    """Note keys beside one that says all."""
    text = f"'{word}' says all of '{name}', so '{{key}}' means nothing; leave one of them out"
    section.allow((word, other), faults, text)


def filter_parameter(
    name: str, section: Section, entity: Entity, same: Callable[[str], bool], faults: RuleFaults
) -> Parameter:
    """A parameter that is a filter of SCIM.

    Fields stand there by their names, by their members and by those that the rule adds; ``same``:
    whether equal values of a field have equal tokens.
    """
    attributes: dict[Attribute, str] = {}
    for rule in entity.fields.values():
        attributes |= {attribute_at(rule.at): rule.name, (field_word(rule.name),): rule.name}
    added: Mapping[str, PlacedValue] = section.value("fields", {})
    for text, item in added.items():
        attribute = attribute_of(text)
        if attribute is None:
            faults.add(
                item.key,
                f"'{text}' is no attribute of SCIM; write userName, name.familyName or "
                "emails.value",
            )
        elif item.value is not None:
            attributes[attribute] = item.value
    swapped = frozenset(filter(same, entity.fields))
    if not swapped:
        faults.add(
            section.key("expression"),
            f"no field of {entity.name} can be looked for by its tokens; write same: true at the "
            "token of one, or refuse: always here",
        )
    return Parameter(name, attributes=attributes, swapped=swapped)


def check_questions(
    asking: Sequence[tuple[Parameter, Mapping[str, PlacedValue]]], verb: Verb, faults: RuleFaults
) -> None:
    """All parameters by which one operation asks the vault send the same ids.

    ``asking``: each with the members among which it stands.
    """
    for one, items in asking:
        if verb is not Verb.READ:
            faults.add(items[one.name].at, f"via: vault belongs to reads, and this is a {verb}")
        elif items is not asking[0][1] or one.send != asking[0][0].send:
            faults.add(
                items[one.name].at,
                f"one search sends one list of ids; write the same 'send' as at "
                f"'{asking[0][0].name}', in the same part of the request",
            )


def unfindable(operations: Sequence[Operation]) -> Iterator[str]:
    """Warnings of searches for records without told ids, and by tokens that values share."""
    for asking in operations:
        yield from _finds_others(asking)
        search = asking.request.search
        parts = (*search.query.values(), *search.form.values()) if search is not None else ()
        places = search.values if search is not None else ()
        if not any(one.vault for one in (*parts, *(one for _, one in places))):
            continue
        own = [one for one in operations if one.entity.fields is asking.entity.fields]
        writes = [one for one in own if one.verb in (Verb.CREATE, Verb.UPDATE)]
        pages = [one for one in writes if one.verb is Verb.CREATE and _answers_a_page(one)]
        listed = any(one.verb is Verb.READ and one.response.id is not None for one in own)
        if not writes:
            yield (
                f"{asking.position}: {asking.label} asks the vault for {asking.entity.name}, and "
                "no operation creates or updates one, so it finds nobody; name those that do"
            )
        elif pages and not listed:
            yield (
                f"{pages[0].position}: {pages[0].label} is answered by a page, which tells no id, "
                f"so {asking.label} does not find what it creates; write response: {{id: header "
                'Location /…/{id}}, or an id in a read, as id: "link /…/{id}" of the rows of a page'
            )


def misordered(operations: Sequence[Operation]) -> Iterator[str]:
    """Warnings of orders that may name fields of some entities of an answer and not of others."""
    for operation in operations:
        entities = [one.entity for one in each_operation([operation])]
        limited = [
            (one.operation, parameter)
            for one in operation.graph
            for parameter in one.refused.values()
        ]
        limited += [
            (one, parameter)
            for one in operation.parts
            if (search := one.request.search) is not None
            for parameter in (*search.query.values(), *search.form.values())
        ]
        for of, parameter in limited:
            missing = {
                f"{entity.name}.{field}": None
                for entity in entities
                for field in entity.fields
                if parameter.unwanted and entity.fields is not of.entity.fields
                if not order_words(entity, field) <= {*parameter.unwanted}
            }
            if missing:
                word = "drop" if parameter.dropped else "refuse"
                yield (
                    f"{operation.position}: '{parameter.name}' of {of.label} may name "
                    f"{', '.join(missing)}, which the same answers show: such an order is that of "
                    f"the tokens; add them to '{word}', or write {word}: always"
                )


def _finds_others(asking: Operation) -> Iterator[str]:
    """Warn of a search by tokens of which there are fewer than values."""
    search, body = asking.request.search, asking.request.body
    fields = set[str]()
    if search is not None:
        parts = (*search.query.values(), *search.form.values(), *(one for _, one in search.values))
        fields |= {of for one in parts for of in (one.of, one.other or "")} | {
            *search.path.values()
        }
    if body is not None and asking.verb in (Verb.READ, Verb.DELETE):
        fields |= {*body.fields, *body.anchored, *body.form.values()}
    for name in sorted(fields & asking.entity.fields.keys()):
        shape = asking.entity.fields[name].shape
        if shape.same and needs_record(shape):
            yield (
                f"{asking.position}: {asking.label} searches by tokens of {name}, and several of "
                f"its values share one of the shape {shape.name}, so records with other values are "
                "found, too; write token: {shape: opaque, same: true} where the column takes a "
                "text, or have the vault find the records (via: vault)"
            )


def _answers_a_page(operation: Operation) -> bool:
    ident = operation.response.id
    in_body = ident is None or ident.source is IdSource.BODY
    return in_body and operation.response.restore is not Restore.NAMED


def settled_search(rule: SearchRule | None, names: Mapping[str, str]) -> SearchRule | None:
    """The rule with fields in the names of the record schema (``schema: records``)."""
    if rule is None:
        return None

    def settled(one: Parameter) -> Parameter:
        attributes = {way: names.get(of, of) for way, of in one.attributes.items()}
        swapped = frozenset(names.get(of, of) for of in one.swapped)
        inside = tuple((path, settled(inner)) for path, inner in one.inside)
        of, other = names.get(one.of, one.of), names.get(one.other or "", one.other)
        return replace(
            one, of=of, other=other, attributes=attributes, swapped=swapped, inside=inside
        )

    return SearchRule(
        {name: settled(one) for name, one in rule.query.items()},
        {name: settled(one) for name, one in rule.form.items()},
        tuple((path, settled(one)) for path, one in rule.values),
        {name: names.get(field, field) for name, field in rule.path.items()},
    )


def has_same_tokens(entity: Entity, field: str) -> bool:
    """Whether equal values of a field get equal tokens."""
    shape = entity.fields[field].shape
    return shape.same or shape.resolution is Resolution.CLEAR


def same_hint(entity: Entity, field: str, where: str) -> str:
    """Suggest the token format for a field whose equal values need equal tokens."""
    rule = entity.fields[field]
    sameable = "same" in SHAPES[rule.shape.name].options
    shape = rule.shape.name if sameable else DEFAULT_SHAPE[rule.kind]
    return (
        f"{where} looks for {field}, so equal values need equal tokens; write token: {{shape: "
        f"{shape}, same: true}} at "
        f"the field {field} of {entity.name}, or name only fields that have it"
    )
