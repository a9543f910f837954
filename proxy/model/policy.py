"""Access policies as administrators write them, and whether they fit a schema.

``{"schema": "contact", "actions": ["read"], "fields": {"email": {"valueType": "redacted", "format":
"[a-z]{8}@example.org"}, "phone": {"valueType": "masked", "mask": {"last": 2}}, "passport":
"hidden"}, "rows": {"filter": {"region": "north"}}}``

``policy_reader`` checks the form of one; ``misfits`` whether it fits the schema that it names.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.filter_reader import read_filter
from proxy.model.query import AnyOf, Like, Test
from proxy.model.record import RecordLimits
from proxy.model.schema import RECORDS_SCHEMA, TECHNICAL, Field, FieldType, Schema, Storage
from proxy.model.values import step

#: In place of the name of a field: every one that the policy does not name.
OTHERS: Final = "*"

_LONGEST_PURPOSE: Final = 200


class Act(enum.StrEnum):
    """Actions that a policy can allow."""

    READ = "read"
    WRITE = "write"  #: create, update, copy, and change attachments
    DELETE = "delete"


class Visibility(enum.StrEnum):
    """Visibility of a field (specification, "Redaction template")."""

    CLEAR = "clear"
    REDACTED = "redacted"
    MASKED = "masked"
    HIDDEN = "hidden"


class MaskRule(msgspec.Struct, frozen=True):
    """So many characters at either end stay, ``char`` replaces others; at least one is masked."""

    first: int = 0
    last: int = 0
    char: str = "*"


class FieldVisibility(msgspec.Struct, frozen=True, omit_defaults=True):
    """Visibility of a field with its options.

    ``format`` is the template of a redacted one, ``mask`` that of a masked one.
    """

    how: Visibility
    format: str = ""
    mask: MaskRule = MaskRule()


def is_purpose(text: str) -> bool:
    """Whether a text can name a purpose: 1 to 200 visible characters and blanks."""
    return 0 < len(text) <= _LONGEST_PURPOSE and text.isprintable() and text.strip(" ") == text


class AccessPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """An access policy. A field that it does not name is shown as ``OTHERS``, else in the clear."""

    name: str
    schema: str
    actions: tuple[Act, ...]
    fields: dict[str, FieldVisibility] = {}
    #: the find filter by which everything is narrowed, as it was written
    rows: dict[str, Any] | None = None
    external_acl: str | None = None
    firewall: Literal["block", "mask"] | None = None
    origins: tuple[str, ...] = ()
    #: what each request has to say that it is for, one of these, or (empty) anything; none: nothing
    purposes: tuple[str, ...] | None = None


def write_policy(policy: AccessPolicy) -> dict[str, Any]:
    """The body of a policy; ``read_policy`` reads it back as the same one."""
    written: dict[str, Any] = {
        "name": policy.name,
        "schema": policy.schema,
        "actions": [str(act) for act in policy.actions],
        "fields": {name: _written(sight) for name, sight in policy.fields.items()},
    }
    if policy.rows is not None:
        written["rows"] = {"filter": policy.rows}
    if policy.external_acl is not None:
        written["external_acl"] = policy.external_acl
    if policy.firewall is not None:
        written["firewall"] = {"mode": policy.firewall}
    if policy.origins:
        written["cors"] = {"origins": list(policy.origins)}
    if policy.purposes is not None:
        written["purpose"] = list(policy.purposes) or "any"
    return written


def _written(sight: FieldVisibility) -> Any:
    if sight.how is Visibility.REDACTED:
        return {"valueType": "redacted", "format": sight.format}
    if sight.how is Visibility.MASKED:
        return {"valueType": "masked", "mask": msgspec.to_builtins(sight.mask)}
    return str(sight.how)


# ---------------------------------------------------------------------- against a schema


def row_tests(policy: AccessPolicy, schema: Schema, limits: RecordLimits) -> tuple[Test, ...]:
    """The tests of ``rows``.

    Raises ``VaultError`` as ``read_filter``, and for tests that an index alone cannot answer.
    """
    if policy.rows is None:
        return ()
    tests = read_filter(schema, policy.rows, limits, "/rows/filter")
    if any(_opens(schema, test) for test in tests):
        text = (
            "Cannot search for parts of texts of which only hashes are kept: what every request "
            "pays for has to be in an index."
        )
        raise VaultError(
            Code.INVALID_FILTER, "The filter cannot narrow rows.", (Detail("/rows/filter", text),)
        )
    return tests


def _opens(schema: Schema, test: Test) -> bool:
    """Whether rows have to be opened to answer it."""
    if isinstance(test, AnyOf):
        return any(_opens(schema, part) for tests in test.alternatives for part in tests)
    if not isinstance(test, Like):
        return False
    in_clear = {field.name for field in schema.fields if field.storage is Storage.INDEXED}
    return not in_clear.issuperset(test.fields)


def is_technical(schema: str, field: Field) -> bool:
    """Whether it says nothing of a person and records need it to be told apart: always shown."""
    return field.type is FieldType.PRIMARY_KEY or (
        schema == RECORDS_SCHEMA and field.name in TECHNICAL
    )


def misfits(policy: AccessPolicy, schema: Schema, limits: RecordLimits) -> list[Detail]:
    """Return the parts of a policy that do not fit the schema that it names, as it is now."""
    fields = {field.name: field for field in schema.fields}
    faults: list[Detail] = []
    for name, sight in policy.fields.items():
        at = f"/fields{step(name)}"
        field = fields.get(name)
        if name == OTHERS:
            continue  # fields that cannot be shown so are hidden
        if field is None:
            faults.append(Detail(at, "The schema has no field of this name."))
        elif is_technical(schema.name, field) and sight.how is not Visibility.CLEAR:
            faults.append(
                Detail(
                    at, "Is always shown: records are named by it, or cannot be read without it."
                )
            )
        elif (
            sight.how in (Visibility.REDACTED, Visibility.MASKED)
            and field.type is not FieldType.STRING
        ):
            text = (
                f"Only strings can be {sight.how}; a text in place of this type would break who "
                "reads it: hide it."
            )
            faults.append(Detail(at, text))
    if (
        policy.external_acl is not None
        and schema.primary is not None
        and schema.primary.name in ("action", "type")
    ):
        text = (
            "The primary key of the schema has the name of another property of what a filter "
            "endpoint is asked."
        )
        faults.append(Detail("/external_acl", text))
    try:
        row_tests(policy, schema, limits)
    except VaultError as error:
        faults.extend(error.details)
    return faults


def refuse_misfit(
    policy: AccessPolicy, schema: Schema | None, limits: RecordLimits, more: Sequence[Detail] = ()
) -> None:
    """Raise ``VaultError(INVALID_POLICY)`` with the misfits, and ``more``.

    ``schema``: that of the name, if it exists.
    """
    unknown = [Detail("/schema", "There is no schema of this name.")]
    details = [*(unknown if schema is None else misfits(policy, schema, limits)), *more]
    if details:
        raise VaultError(
            Code.INVALID_POLICY, "The policy does not fit the schema that it names.", tuple(details)
        )


#: Policies as they are kept; numbers with a point stay exact.
encode_policy: Final[Callable[[Any], bytes]] = msgspec.json.Encoder(decimal_format="number").encode
