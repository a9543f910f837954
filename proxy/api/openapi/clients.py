"""What the operations mean that give access: tokens and clients."""

from typing import Any, Final

from proxy.api.openapi.components import INSTANT
from proxy.api.openapi.parts import (
    Description,
    Example,
    Json,
    array,
    closed,
    header,
    integer,
    ref,
    string,
)

ACCESS: Final = "Access"
CLIENTS: Final = "Clients"

_FORM: Final = "application/x-www-form-urlencoded"
_BASIC: Final = {"Authorization": "Basic {basic}", "Content-Type": _FORM}
_CREDENTIALS: Final = header(
    "Authorization", "`Basic` with identifier and secret of the client (RFC 6749, section 2.3.1)."
)
_ID: Final = "q2V5bA7kTn4c"
_CLIENT: Final[dict[str, Any]] = {
    "client_id": _ID, "name": "crm", "environment_id": "default", "admin": False, "policies": ["support"], "disabled": False,
    "created_at": "2026-05-04T10:15:00.000Z",
}  # fmt: skip

_SHOWN: Final[Json] = closed(
    {
        "client_id": string("Identifies the client."),
        "name": string("What people call it."),
        "environment_id": string("Whose records it works with."),
        "admin": {"type": "boolean", "description": "May also change schemas, clients and policies."},
        "policies": array(string(), description="The access policies it is under; none: everything in its environment."),
        "disabled": {"type": "boolean", "description": "Gets no tokens."},
        "created_at": INSTANT,
        "external_id": string("Of a client of an external issuer: the id that it has there."),
    },
    "client_id", "name", "environment_id", "admin", "policies", "disabled", "created_at",
)  # fmt: skip

_TOKEN: Final = Description(
    ACCESS,
    "Get an access token",
    "By client credentials (RFC 6749, section 4.4). The token is good for `expires_in` seconds; then ask for another one.",
    {
        "type": "object",
        "required": ["grant_type"],
        "properties": {
            "grant_type": {"const": "client_credentials"},
            "scope": string("The environment id; it must match the credentials."),
            "audience": string("The address of this interface; several with spaces between them."),
            "client_id": string("In place of `Authorization`, with `client_secret`."),
            "client_secret": string("See `client_id`."),
        },
    },
    closed(
        {
            "access_token": string("Send it as `Authorization: Bearer …`."),
            "token_type": {"const": "bearer"},
            "expires_in": integer("Seconds."),
            "scope": string("The environment id."),
        },
        "access_token", "token_type", "expires_in", "scope",
    ),
    (
        Example(
            "A token", 200, headers=_BASIC, body=b"grant_type=client_credentials&scope=default",
            answer={"access_token": "eyJ…", "token_type": "bearer", "expires_in": 300, "scope": "default"},
        ),
        Example("Another grant", 400, headers=_BASIC, body=b"grant_type=password", answer={
            "error": "unsupported_grant_type", "error_description": "The only grant here is client_credentials.",
        }),
    ),
    "A token.",
    _FORM,
    failure="OAuthError",
    failure_type="application/json",
    parameters=(_CREDENTIALS,),
)  # fmt: skip

DESCRIBED: Final[dict[str, Description]] = {
    "token": _TOKEN,
    "token_slash": _TOKEN._replace(summary="Get an access token (with a slash)", text="The same.", examples=()),
    "introspect": Description(
        ACCESS,
        "Ask whether a token is valid",
        "RFC 7662; for clients of the same environment, by their credentials or an access token of their own.",
        {"type": "object", "required": ["token"], "properties": {"token": string("The token in question.")}},
        {
            "type": "object",
            "required": ["active"],
            "properties": {"active": {"type": "boolean"}, "scope": string(), "client_id": string(), "exp": integer()},
        },
        (Example("No token of ours", 200, headers=_BASIC, body=b"token=abc", answer={"active": False}),),
        "What is known of it; of one that is not valid no more than that.",
        _FORM,
        failure="OAuthError",
        failure_type="application/json",
        parameters=(_CREDENTIALS,),
    ),
    "jwks": Description(
        ACCESS,
        "The keys of tokens",
        "RFC 7517: what access tokens can be verified with elsewhere.",
        answer=closed({"keys": array({"type": "object"})}, "keys"),
        examples=(Example("The keys", 200),),
        answered="The public keys.",
    ),
    "metadata": Description(
        ACCESS,
        "About the token service",
        "RFC 8414: where a client library finds everything.",
        answer={"type": "object", "required": ["issuer", "token_endpoint", "jwks_uri", "grant_types_supported"]},
        examples=(Example("The metadata", 200),),
        answered="The metadata.",
    ),
    "create_client": Description(
        CLIENTS,
        "Create a client",
        "For the environment of the access token; administrators of `default` make clients of all. Its secret is shown in this answer and never again.",
        closed(
            {
                "name": string("What people call it.", minLength=1),
                "environment_id": string("The environment of the access token; for administrators of `default` any."),
                "admin": {"type": "boolean", "default": False, "description": "May also change schemas, clients and policies."},
                "policies": array(
                    string("The name of a policy."), maxItems=32, description="The access policies it is under; none: everything in its environment."
                ),
                "external_id": string(
                    "For a client that gets its tokens from the external issuer (`auth.issuer`): the id that it has there. Where `auth.environment_claim` is `none`, it is registered by an administrator of `default`, once in all environments.",
                    minLength=1, maxLength=256,
                ),
            },
            "name", "environment_id",
        ),
        closed(
            {"client_id": string("Identifies it."), "client_secret": string("Proves it; a client of an external issuer has none here.")},
            "client_id",
        ),
        (
            Example(
                "A client of an application", 201, body={"name": "crm", "environment_id": "default"},
                answer={"client_id": _ID, "client_secret": "…"},
            ),
            Example(
                "A client under a policy", 201, body={"name": "help desk", "environment_id": "default", "policies": ["{policy}"]},
                answer={"client_id": _ID, "client_secret": "…"},
            ),
            Example(
                "A client of the external issuer", 201,
                body={"name": "crm", "environment_id": "default", "external_id": "0oa3crm"}, answer={"client_id": _ID},
            ),
        ),
        "What the client proves itself with.",
        links={
            name: {"operationId": name, "parameters": {"client_id": "$response.body#/client_id"}, "description": text}
            for name, text in (("show_client", "See it."), ("remove_client", "End it."))
        },
    ),
    "list_clients": Description(
        CLIENTS,
        "List clients",
        "Oldest first; never a secret. Those of the environment of the access token; for administrators of `default` those of all.",
        answer=closed({"data": array(_SHOWN), "meta": ref("Meta")}, "data", "meta"),
        examples=(Example("The clients", 200),),
        answered="A page of clients.",
    ),
    "show_client": Description(
        CLIENTS,
        "See a client",
        "Never its secret.",
        answer=_SHOWN,
        examples=(Example("A client", 200, {"client_id": "{client_id}"}, answer={**_CLIENT, "name": "examples", "admin": True, "policies": []}),),
        answered="The client.",
    ),
    "remove_client": Description(
        CLIENTS,
        "End a client",
        "Every token of it ends at once.",
        examples=(Example("A client", 204, {"client_id": "{client_id}"}),),
        answered="It is gone.",
    ),
}  # fmt: skip
