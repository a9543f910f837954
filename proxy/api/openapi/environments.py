"""What the operations mean that make and remove environments."""

from typing import Any, Final

from proxy.api.openapi.components import INSTANT
from proxy.api.openapi.parts import Description, Example, Json, array, closed, ref, string

ENVIRONMENTS: Final = "Environments"

_ID: Final[Json] = string("Identifies the environment.", pattern="^[a-z][a-z0-9]{0,31}$")
_ENVIRONMENT: Final[dict[str, Any]] = {
    "environment_id": "acme", "name": "Acme AB", "created_at": "2026-05-04T10:15:00.000Z",
}  # fmt: skip
_SHOWN: Final[Json] = closed(
    {
        "environment_id": _ID,
        "name": string("What people call it."),
        "created_at": {**INSTANT, "description": "When it was made; of `default`: when the list of environments was begun."},
    },
    "environment_id", "name", "created_at",
)  # fmt: skip

DESCRIBED: Final[dict[str, Description]] = {
    "create_environment": Description(
        ENVIRONMENTS,
        "Create an environment",
        "With keys of its own, and nothing in it. Administrators of `default` make the first client of it. An id is given once: 409 also "
        "for one whose environment has been removed.",
        closed(
            {
                "name": string("What people call it.", minLength=1, maxLength=128),
                "environment_id": {**_ID, "description": "Its id; without it, a random one."},
            },
            "name",
        ),
        _SHOWN,
        (
            Example(
                "For another company", 201, body={"name": "Acme AB", "environment_id": "acme"}, answer=_ENVIRONMENT,
            ),
            Example("An id that is taken", 409, body={"name": "Again", "environment_id": "default"}),
        ),
        "The environment, which can be used at once.",
    ),
    "list_environments": Description(
        ENVIRONMENTS,
        "List environments",
        "Oldest first. Administrators of another environment than `default` see their own alone.",
        answer=closed({"data": array(_SHOWN), "meta": ref("Meta")}, "data", "meta"),
        examples=(Example("The environments", 200),),
        answered="A page of environments.",
    ),
    "remove_environment": Description(
        ENVIRONMENTS,
        "Remove an environment",
        "With its clients, whose tokens end at once, and its schemas. When this answers, its keys are destroyed, so that nothing it held can be "
        "opened any more; rows and files go in the background. One that holds records is refused (409) unless `records=delete` says that "
        "they go, too. `default` stays.",
        examples=(
            Example("An environment with its records", 204, {"environment_id": "examples"}, {"records": "delete"}),
            Example("The first one", 409, {"environment_id": "default"}),
        ),
        answered="It is gone.",
    ),
}  # fmt: skip
