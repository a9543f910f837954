"""Every operation of the vault's own interface, in one literal table.

A line is a promise: the statuses are those of the interface specification, operation by operation, and the interface document
(``document``) is made of this table.
"""

from typing import Final

from proxy.web.api import about, clients, tokens
from proxy.web.api.operation import Access, Operation, Takes

_FORM, _NOTHING = Takes.FORM, Takes.NOTHING
_OPEN, _ADMIN = Access.OPEN, Access.ADMIN
_OAUTH = (400, 401, 408, 413, 429)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("token", "POST", "/oauth2/token", tokens.token, 200, _OAUTH, _FORM, _OPEN, refuse=tokens.refuse),
    Operation("token_slash", "POST", "/oauth2/token/", tokens.token, 200, _OAUTH, _FORM, _OPEN, refuse=tokens.refuse),
    Operation(
        "introspect", "POST", "/oauth2/introspect", tokens.introspect, 200, _OAUTH, _FORM, _OPEN, refuse=tokens.refuse
    ),
    Operation("jwks", "GET", "/oauth2/jwks", tokens.jwks, 200, (400,), _NOTHING, _OPEN),
    Operation(
        "metadata", "GET", "/.well-known/oauth-authorization-server", tokens.metadata, 200, (400,), _NOTHING, _OPEN
    ),
    Operation("create_client", "POST", "/api/clients", clients.create, 201, (400, 401, 403, 413, 415), access=_ADMIN),
    Operation(
        "list_clients",
        "GET",
        "/api/clients",
        clients.listing,
        200,
        (400, 401, 403),
        _NOTHING,
        _ADMIN,
        ("limit", "offset"),
    ),
    Operation(
        "show_client", "GET", "/api/clients/{client_id}", clients.one, 200, (400, 401, 403, 404), _NOTHING, _ADMIN
    ),
    Operation(
        "remove_client",
        "DELETE",
        "/api/clients/{client_id}",
        clients.remove,
        204,
        (400, 401, 403, 404),
        _NOTHING,
        _ADMIN,
    ),
    Operation("openapi", "GET", "/openapi.json", about.openapi, 200, (400, 401), _NOTHING, _OPEN),
    Operation("docs", "GET", "/docs", about.docs, 200, (400,), _NOTHING, _OPEN),
)
