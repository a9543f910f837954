"""What the operations mean that list and rotate keys."""

from typing import Final

from proxy.api.openapi.parts import Description, Example, Json, array, closed, string
from proxy.vault.maintenance.key_usage import USAGE_KINDS

KEYS: Final = "Keys"

_ID: Final[Json] = string("Tells keys apart; not secret.", pattern="^[0-9A-Za-z_-]+$")
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_USED: Final[Json] = {
    "type": ["object", "null"],
    "description": "What an older key is still needed for: how many of each kind, as everything was last looked through. Null of the key that "
    "seals, and while nobody has looked.",
    "properties": {kind: {**_COUNT, "minimum": 1} for kind in USAGE_KINDS},
    "additionalProperties": False,
}
_SHOWN: Final[Json] = closed(
    {
        "master": closed({"key_id": {**_ID, "description": "The key of the key source, which wraps all others."}}, "key_id"),
        "signing": array(
            closed({"key_id": _ID, "signs": {"type": "boolean", "description": "Whether it signs; all verify."}}, "key_id", "signs")
        ),
        "data": array(
            closed(
                {
                    "environment_id": string("Whose keys these are."),
                    "keys": array(
                        closed(
                            {
                                "key_id": _ID,
                                "seals": {"type": "boolean", "description": "Whether it seals; all open."},
                                "used_by": _USED,
                            },
                            "key_id", "seals", "used_by",
                        )
                    ),
                    "wrapped_by": {**_ID, "description": "The master key that wraps them."},
                    "sealings": {**_COUNT, "description": "At most so many bodies were sealed with the one that seals."},
                    "reseal": closed(
                        {
                            "state": {
                                "enum": ["none", "running", "stopped", "done"],
                                "description": "How far it is with what older keys have sealed; none: there never were any. "
                                "Done: older keys that nothing needs are gone.",
                            },
                            "records": {**_COUNT, "description": "Records that were looked at."},
                            "versions": {**_COUNT, "description": "Past versions that were looked at."},
                            "contents": {**_COUNT, "description": "Contents of files that were looked at."},
                            "unreadable": {**_COUNT, "description": "Of all of them, those that do not open."},
                        },
                        "state", "records", "versions", "contents", "unreadable",
                    ),
                },
                "environment_id", "keys", "wrapped_by", "sealings", "reseal",
            )
        ),
    },
    "master", "signing", "data",
)  # fmt: skip

DESCRIBED: Final[dict[str, Description]] = {
    "list_keys": Description(
        KEYS,
        "List keys",
        "For administrators of `default`. Ids and figures; no key ever leaves.",
        answer=_SHOWN,
        examples=(Example("The keys", 200),),
        answered="The keys.",
    ),
    "rotate_key": Description(
        KEYS,
        "Rotate a key",
        "For administrators of `default`. `data`: everything new is sealed with a fresh key, and what older ones have sealed is sealed anew in the "
        "background; then they are dropped. `master`: a fresh key wraps all others. `signing`: another key signs access tokens. No request notices any of them.",
        closed(
            {
                "key": {"enum": ["data", "master", "signing"], "description": "Which kind."},
                "environment_id": string("Whose data key; without it, that of `default`."),
            },
            "key",
        ),
        _SHOWN,
        (
            Example("Another data key", 200, body={"key": "data"}),
            Example("Another signing key", 200, body={"key": "signing"}),
        ),
        "The keys that there are now.",
    ),
}  # fmt: skip
