"""What the operations mean that say who may see and do what."""

from typing import Any, Final

from proxy.api.openapi.parts import Description, Example, Json, array, closed, integer, ref, string
from proxy.model.policy import MOST_ORIGINS, MOST_POLICY_FIELDS, MOST_READABLE, Act
from proxy.model.template import LONGEST_TEMPLATE_TEXT

POLICIES: Final = "Policies"

_MASK: Final[Json] = closed(
    {
        "first": integer("Letters and digits at the beginning that stay readable.", minimum=0, maximum=MOST_READABLE, default=0),
        "last": integer("The same at the end.", minimum=0, maximum=MOST_READABLE, default=0),
        "char": string("Stands for the others.", minLength=1, maxLength=1, default="*"),
    }
)  # fmt: skip
_FORMAT: Final[Json] = string(
    r"A template: constant text and groups `[alphabet]{n}`, such as `[a-z]{8}@example.org`; `\` before a character takes it as it is. "
    f"A redacted value has at most {LONGEST_TEMPLATE_TEXT} characters.",
    minLength=1,
)
_SIGHT: Final[Json] = {
    "oneOf": [
        string(
            "In the clear, or as if it were not there; `masked` leaves nothing readable.",
            enum=["clear", "hidden", "masked"],
        ),
        closed({"valueType": {"enum": ["clear", "hidden"]}}, "valueType"),
        closed({"valueType": {"const": "redacted"}, "format": _FORMAT}, "valueType", "format"),
        closed({"valueType": {"const": "masked"}, "mask": _MASK}, "valueType"),
    ]
}
_MEMBERS: Final[dict[str, Json]] = {
    "name": string("That in the address.", pattern="^[A-Za-z0-9]{1,64}$"),
    "schema": string("The schema whose records it is about."),
    "actions": array(string(enum=[str(act) for act in Act]), minItems=1, description="What is allowed."),
    "fields": {
        "type": "object",
        "description": "How fields are shown; those that are not named as `*` says, else in the clear. Strings alone can be redacted and masked; "
        "the primary key is always shown.",
        "maxProperties": MOST_POLICY_FIELDS,
        "additionalProperties": _SIGHT,
    },
    "rows": closed(
        {"filter": {"type": "object", "description": "As in a search.", "minProperties": 1}},
        "filter",
        description="Records that the filter does not find are not there.",
    ),
    "external_acl": string(
        "The filter endpoint that is asked about each record: `https://`, or `http://` on this machine; in other environments than "
        "`default` at a host that the operator allows (`acl.allow`)."
    ),
    "firewall": closed(
        {"mode": string("What callers from outside the country get: redacted values, or a refusal.", enum=["mask", "block"])}, "mode"
    ),
    "cors": closed(
        {"origins": array(string("Scheme, host and port, as browsers send it."), minItems=1, maxItems=MOST_ORIGINS)},
        "origins",
        description="Where pages may come from that call with tokens of such clients.",
    ),
}  # fmt: skip
_POLICY: Final[Json] = closed(_MEMBERS, "schema", "actions")
_FAULTS: Final[Json] = array(
    closed(
        {"source": string("JSON Pointer into the policy."), "detail": string("What does not fit.")},
        "source",
        "detail",
    ),
    description="What does not fit the schema any more, if anything; such parts give nothing.",
)
_SHOWN: Final[Json] = closed({**_MEMBERS, "faults": _FAULTS}, "name", "schema", "actions", "fields")
_FIELDS: Final[dict[str, Any]] = {
    "email": {"valueType": "redacted", "format": "[a-z]{8}@example.org"},
    "name": {"valueType": "masked", "mask": {"first": 1, "last": 0, "char": "*"}},
    "balance": "hidden",
}
_SUPPORT: Final[dict[str, Any]] = {
    "schema": "contact", "actions": ["read"], "fields": _FIELDS, "rows": {"filter": {"city": "Uppsala"}},
}  # fmt: skip
_KNOWN: Final = {"policy": "{policy}"}
_NAME: Final = {"policy": "support"}

DESCRIBED: Final[dict[str, Description]] = {
    "put_policy": Description(
        POLICIES,
        "Put a policy in force",
        "A new one, or one in place of that of its name. Clients under it are bound by it with their next request. A client under several "
        "policies of one schema may do what one of them allows, and sees what one of them shows.",
        _POLICY,
        _SHOWN,
        (
            Example("A policy for a help desk", 201, _NAME, body=_SUPPORT, answer={"name": "support", **_SUPPORT}),
            Example("The same again", 200, _KNOWN, body={"schema": "contact", "actions": ["read", "write"]}),
            Example("A field that there is not", 400, _NAME, body={**_SUPPORT, "fields": {"iban": "hidden"}}),
        ),
        "The policy, which was there before.",
    ),
    "list_policies": Description(
        POLICIES,
        "List policies",
        "By their names.",
        answer=closed({"data": array(_SHOWN), "meta": ref("Meta")}, "data", "meta"),
        examples=(Example("The policies", 200),),
        answered="A page of policies.",
    ),
    "show_policy": Description(
        POLICIES,
        "See a policy",
        "With what of it does not fit its schema any more.",
        answer=_SHOWN,
        examples=(Example("A policy", 200, _KNOWN), Example("No such policy", 404, {"policy": "none"})),
        answered="The policy.",
    ),
    "remove_policy": Description(
        POLICIES,
        "Remove a policy",
        "One under which clients are is refused (409 `policy_in_use`).",
        examples=(Example("A policy that nobody needs any more", 204, _KNOWN),),
        answered="It is gone.",
    ),
}  # fmt: skip
