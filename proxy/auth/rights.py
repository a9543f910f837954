"""Rights out of policies: what several of them say of one schema, joined, and the functions that
redact and mask.

Policies add up. An action that one allows is allowed. A field is as visible as in the most generous
policy with read access, and a record exists if it does for one of these: a write-only policy must
not open data that another one hides from readers. Read access must not extend to writers either: a
record is written or deleted only if it also exists for a policy with that action. Guards of the
whole do not add up. A filter endpoint of one policy is asked whatever the others say; two different
ones contradict each other, so nothing is allowed. A purpose that one policy requires is always
required.

A redacted value is the text that its template gives for a number, and that number a keyed hash of
the record, the field, the policy, the template, and the era of the value: nothing has to be stored
to keep it, it changes whenever the value does, and an earlier one never comes back.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from proxy.crypto.prf import Prf
from proxy.errors import VaultError
from proxy.model import can_produce, capacity, fill, read_template
from proxy.model.policy import (
    OTHERS,
    AccessPolicy,
    Act,
    FieldVisibility,
    MaskRule,
    Visibility,
    is_technical,
    row_tests,
)
from proxy.model.query import AnyOf, Test
from proxy.model.record import DEFAULTS
from proxy.model.rights import FirewallMode, Redactor, Rights
from proxy.model.schema import ConcealedField, Field, FieldType, Schema, Storage
from proxy.tokenization.mask import Visible, mask_text

#: Makes a keyed function for one purpose, as ``Keyset.hasher`` does.
Keyed = Callable[..., Prf]

#: From the most generous on.
_GENEROUS: Final = (Visibility.CLEAR, Visibility.MASKED, Visibility.REDACTED, Visibility.HIDDEN)
_CLEAR: Final = FieldVisibility(Visibility.CLEAR)
#: In place of every text of a field that is shown in the clear at home; its length tells nothing.
_OUTSIDE: Final = "********"
#: Bytes that a keyed hash gives, and those beyond the capacity of a template that make every text
#: equally likely.
_HASH: Final = 16
_SPARE: Final = 16

#: Cached templates: an earlier text that comes back was rendered before, and is no new value.
_DISTINCT: Final = 10**9


def granted(policies: Sequence[AccessPolicy], schema: Schema, keyed: Keyed) -> Rights:
    """The rights of a client under these policies; those for another schema count for nothing."""
    own = [policy for policy in policies if policy.schema == schema.name]
    endpoints = {policy.external_acl for policy in own if policy.external_acl is not None}
    if not own or len(endpoints) > 1:
        nobody = Rights(frozenset(), Schema(schema.name, ()), creates=False, files=False)
        return msgspec.structs.replace(nobody, abroad=nobody)
    showing = _showing(own)
    sights = {
        field.name: _joined([_sight(policy, field) for policy in showing])
        for field in schema.fields
    }
    rights = _visible(schema, sights, keyed)
    return msgspec.structs.replace(
        rights, abroad=_outside(rights, own, schema), **_common(own, schema)
    )


def _showing(policies: Sequence[AccessPolicy]) -> Sequence[AccessPolicy]:
    """Return the policies that decide visibility: those that allow reading, or all if none does."""
    return [policy for policy in policies if Act.READ in policy.actions] or policies


def full_rights(schema: Schema) -> Rights:
    """Full rights on a schema, with their reduction outside the country."""
    rights = Rights(frozenset(Act), schema, frozenset(field.name for field in schema.fields))
    return msgspec.structs.replace(rights, abroad=_outside(rights, (), schema))


def firewall(policies: Sequence[AccessPolicy]) -> FirewallMode | None:
    """Return the strictest mode of the policies for callers outside the country."""
    modes = {policy.firewall for policy in policies}
    return "block" if "block" in modes else "mask" if "mask" in modes else None


def excess(own: Sequence[AccessPolicy], other: Sequence[AccessPolicy]) -> str | None:
    """Describe what the other policies allow beyond one's own; ``None`` for nothing.

    The policies themselves are compared, not today's rights, so that the verdict outlives changes
    of a schema. A policy that is not provably within is beyond.
    """
    if _loosens(own, other):
        return "callers from outside the country"
    for schema in dict.fromkeys(policy.schema for policy in other):
        mine, theirs = (
            [policy for policy in policies if policy.schema == schema] for policies in (own, other)
        )
        if beyond := _beyond(mine, theirs):
            return f"{beyond} of the schema {schema}"
    return None


def _beyond(mine: Sequence[AccessPolicy], theirs: Sequence[AccessPolicy]) -> str | None:
    """The same of the policies of one schema."""
    allowed = {act for policy in mine for act in policy.actions}
    acts = {act for policy in theirs for act in policy.actions}
    guards, others = (
        {one.external_acl for one in policies} - {None} for policies in (mine, theirs)
    )
    if not acts <= allowed or len(guards) > 1:
        return f"the actions {', '.join(sorted(acts))}"
    if (guards and others != guards) or _loosens(mine, theirs):
        return "records that a filter endpoint or a firewall guards"
    admitted, named = _purposes(mine), _purposes(theirs)
    if not all(any(not one or (two and {*two} <= {*one}) for two in named) for one in admitted):
        return "requests that say no purpose,"
    own_readers, readers = _showing(mine), _showing(theirs)
    for name in sorted({OTHERS, *(name for one in (*mine, *theirs) for name in one.fields)}):
        most, sight = _shows(own_readers, name), _shows(readers, name)
        if _GENEROUS.index(sight.how) < _GENEROUS.index(most.how) or (
            sight.how is most.how and sight != most
        ):
            return f"the field {name}" if name != OTHERS else "fields that no policy names"
    for act in (None, *sorted(acts - {Act.READ})):
        if not _narrower(
            own_readers if act is None else [one for one in mine if act in one.actions],
            readers if act is None else [one for one in theirs if act in one.actions],
        ):
            return "rows"
    return None


def _shows(policies: Sequence[AccessPolicy], name: str) -> FieldVisibility:
    """The most generous way in which one of the policies shows a field."""
    sights = [one.fields.get(name) or one.fields.get(OTHERS, _CLEAR) for one in policies]
    return min(sights, key=lambda sight: _GENEROUS.index(sight.how))


def _narrower(mine: Sequence[AccessPolicy], theirs: Sequence[AccessPolicy]) -> bool:
    """Whether each row of the second ones is a row of the first."""
    rows = [policy.rows for policy in mine]
    return None in rows or all(policy.rows in rows for policy in theirs)


def _loosens(own: Sequence[AccessPolicy], other: Sequence[AccessPolicy]) -> bool:
    """Whether the other ones may let callers in from outside whom one's own would not."""
    return firewall(other) not in ("block", firewall(own))


# ---------------------------------------------------------------------- parts


def _sight(policy: AccessPolicy, field: Field) -> tuple[str, FieldVisibility]:
    """Return the visibility of a field under a policy, by its name; hidden if it no longer fits."""
    sight = policy.fields.get(field.name) or policy.fields.get(OTHERS, _CLEAR)
    if is_technical(policy.schema, field):
        return policy.name, _CLEAR
    if sight.how in (Visibility.REDACTED, Visibility.MASKED) and field.type is not FieldType.STRING:
        return policy.name, FieldVisibility(Visibility.HIDDEN)
    return policy.name, sight


def _joined(sights: Sequence[tuple[str, FieldVisibility]]) -> tuple[str, FieldVisibility]:
    """The most generous one; of several alike the first."""
    return min(sights, key=lambda named: _GENEROUS.index(named[1].how))


def _visible(
    schema: Schema, sights: dict[str, tuple[str, FieldVisibility]], keyed: Keyed
) -> Rights:
    """The part of rights that decides visibility."""
    fields: list[Field] = []
    veils: dict[str, Redactor] = {}
    for field in schema.fields:
        policy, sight = sights[field.name]
        if sight.how is Visibility.CLEAR:
            fields.append(field)
        elif sight.how is not Visibility.HIDDEN:
            fields.append(_concealed(field, sight.how))
            veils[field.name] = (
                _masking(sight.mask)
                if sight.how is Visibility.MASKED
                else _redacting(
                    sight.format, keyed("redacted", schema.name, field.name, policy, sight.format)
                )
            )
    return _with(schema, fields, veils)


def _outside(rights: Rights, policies: Sequence[AccessPolicy], schema: Schema) -> Rights:
    """Reduce rights to those outside the country: clear texts masked, all else hidden."""
    fields: list[Field] = []
    veils: dict[str, Redactor] = {}
    unshown: set[str] = set()
    for field in (rights.view or schema).fields:
        if is_technical(schema.name, field) or isinstance(field, ConcealedField):
            fields.append(field)
        elif field.type is FieldType.STRING:
            fields.append(_concealed(field, Visibility.MASKED))
        else:
            fields.append(_concealed(field, "not at all"))
            unshown.add(field.name)
        if field.type is FieldType.STRING:
            veils[field.name] = rights.veils.get(field.name, _UNSEEN)
    visible = _with(schema, fields, veils)
    return msgspec.structs.replace(
        visible, names=visible.names - unshown, files=False, **_common(policies, schema)
    )


def _common(policies: Sequence[AccessPolicy], schema: Schema) -> dict[str, Any]:
    """Rights that are the same inside and outside the country; without policies, all."""
    if not policies:
        return {"actions": frozenset(Act)}
    rows = _rows(_showing(policies), schema)
    return {
        "actions": frozenset(act for policy in policies for act in policy.actions),
        "rows": rows,
        "changing": {
            act: more
            for act in (Act.WRITE, Act.DELETE)
            if (more := _allowing(act, policies, schema)) != rows and more
        },
        "acl": next(
            (policy.external_acl for policy in policies if policy.external_acl is not None), None
        ),
        "firewall": firewall(policies),
        "purposes": _purposes(policies),
    }


def _purposes(policies: Sequence[AccessPolicy]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(one.purposes for one in policies if one.purposes is not None))


def _with(schema: Schema, fields: Sequence[Field], veils: dict[str, Redactor]) -> Rights:
    names = frozenset(field.name for field in fields)
    missing = {field.name for field in schema.fields if field.required} - names
    return Rights(
        frozenset(), Schema(schema.name, tuple(fields)), names, veils, creates=not missing
    )


def _concealed(field: Field, how: str) -> ConcealedField:
    members = {name: getattr(field, name) for name in Field.__struct_fields__}
    return ConcealedField(
        **{**members, "storage": Storage.ENCRYPTED, "partial_match": False, "how": str(how)}
    )


def _rows(policies: Sequence[AccessPolicy], schema: Schema) -> tuple[Test, ...]:
    """Return the tests of a record that one of the policies lets through.

    A filter that does not fit any more holds for none.
    """
    if any(policy.rows is None for policy in policies):
        return ()
    alternatives: list[tuple[Test, ...]] = []
    for policy in policies:
        try:
            alternatives.append(row_tests(policy, schema, DEFAULTS))
        except VaultError:
            continue
    return (AnyOf(tuple(alternatives)),)


def _allowing(act: Act, policies: Sequence[AccessPolicy], schema: Schema) -> tuple[Test, ...]:
    allowing = [policy for policy in policies if act in policy.actions]
    return _rows(allowing, schema) if allowing else ()


def _redacting(template: str, prf: Prf) -> Redactor:
    groups = read_template(template)
    ways = capacity(groups)
    blocks = -(-(ways.bit_length() // 8 + 1 + _SPARE) // _HASH)

    def redact(rid: int, era: int, _value: str) -> str:
        position = rid.to_bytes(8, "big") + era.to_bytes(8, "big")
        number = b"".join([prf(position + bytes((block,))) for block in range(blocks)])
        return fill(groups, int.from_bytes(number, "big") % ways)

    return Redactor(redact, partial(can_produce, groups), distinct=ways >= _DISTINCT)


def _masking(mask: MaskRule) -> Redactor:
    visible = Visible(mask.first, mask.last)

    def masked(_rid: int, _era: int, value: str) -> str:
        text = mask_text(value, visible, mask.char)
        # signs alone: nothing of it would be masked
        return text if text != value else mask.char * len(value)

    def fits(text: str) -> bool:
        # Under every mask character a letter may have stood; or signs alone under all of them.
        return mask.char in text and text in (
            masked(0, 0, text.replace(mask.char, "x")),
            mask.char * len(text),
        )

    return Redactor(masked, fits, masks=True)


def _eight(_rid: int, _era: int, _value: str) -> str:
    return _OUTSIDE


_UNSEEN: Final = Redactor(_eight, _OUTSIDE.__eq__, masks=True)
