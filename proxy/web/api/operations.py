"""Every operation of the vault's own interface, in one literal table.

A line is a promise: the statuses are those of the interface specification, operation by operation, and the interface document
(``document``) is made of this table. 413 stands wherever a JSON body is read, because its size is limited everywhere.
"""

from typing import Final

from proxy.web.api import (
    about,
    baits,
    clients,
    environments,
    files,
    finding,
    functions,
    keys,
    models,
    policies,
    schemas,
    tokens,
)
from proxy.web.api.operation import Access, Operation, Takes
from proxy.web.api.popoperations import OPERATIONS as OF_POP
from proxy.web.api.recordoperations import OPERATIONS as OF_RECORDS

_FORM, _NOTHING = Takes.FORM, Takes.NOTHING
_OPEN, _ADMIN = Access.OPEN, Access.ADMIN
_MODEL: Final = "/api/models/{schema}"
_ONE: Final = _MODEL + "/{record_key}"
_FILES: Final = "/api/models/{schema}/{record_key}/files"

# Statuses of errors. Those of the model-based family are the specification's, operation by operation.
_OAUTH: Final = (400, 401, 408, 413, 429)
_WRITE: Final = (400, 401, 409, 413, 415, 422, 429)
_CHANGE: Final = (400, 401, 404, 409, 412, 413, 415, 422, 429)
_CLONE: Final = (400, 401, 403, 409, 413, 415, 422, 429)
_FIND: Final = (400, 401, 409, 413, 415, 422, 429)
_DELETE: Final = (400, 401, 404, 409, 429)
_DELETE_MANY: Final = (400, 401, 404, 409, 413, 415, 422, 429)
_HISTORY: Final = (400, 401, 404, 409, 422)
_EXPORT: Final = (400, 401, 409, 422)
_CALL: Final = (400, 401, 413, 415, 429)
_MIGRATE: Final = (400, 401, 404, 409, 422, 429)
_UPLOAD: Final = (400, 401, 403, 404, 409, 413, 415, 422, 429)
_DOWNLOAD: Final = (401, 403, 404, 416, 422, 429)  # 416, and 206 beside 200: HTTP's own, for parts of a file
_FILE: Final = (401, 403, 404, 422, 429)
_CLIENTS: Final = (400, 401, 403)
_SCHEMA: Final = "/api/schemas/{schema}"
_POLICY: Final = "/api/policies/{policy}"
_BAIT: Final = "/api/models/{schema}/{record_key}/bait"

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("create_record", "POST", _MODEL, models.create_record, 201, (*_WRITE, 412), abroad=True),
    Operation("create_record_v2", "POST", "/api/v2/models/{schema}", models.create_record_v2, 201, _WRITE, abroad=True),
    Operation("create_records", "POST", _MODEL + "/batch", models.create_records, 201, _WRITE, abroad=True),
    Operation("update_records", "POST", _MODEL + "/batch/update", models.update_records, 201, _WRITE, abroad=True),
    Operation("clone_record", "POST", _MODEL + "/clone", models.clone_record, 201, _CLONE, abroad=True),
    Operation("find_records", "POST", _MODEL + "/find", finding.find_records, 200, _FIND, reads=True, abroad=True),
    Operation("aggregate_records", "POST", _MODEL + "/aggregate", finding.aggregate_records, 200, _FIND, reads=True, abroad=True),
    Operation("delete_records", "POST", _MODEL + "/batch/delete", models.delete_records, 204, _DELETE_MANY, query=("cascadeBy",), abroad=True),
    Operation("delete_record", "DELETE", _MODEL + "/{record_key}", models.delete_record, 204, (*_DELETE, 412), _NOTHING, query=("cascadeBy",), abroad=True),
    Operation("record_history", "GET", _MODEL + "/{record_key}/history", finding.record_history, 200, _HISTORY, _NOTHING, query=("limit", "offset"), abroad=True),
    Operation("migrate_record", "POST", _MODEL + "/{source}/migrate/{destination}", models.migrate_record, 204, _MIGRATE, _NOTHING, abroad=True),
    *OF_RECORDS,
    *OF_POP,
    Operation("find_direct", "POST", "/api/find", finding.find_direct, 200, _FIND, reads=True, abroad=True),
    Operation("sf_find", "POST", "/sf/find", finding.find_direct, 200, _FIND, reads=True, abroad=True),
    Operation("sf_find_ids", "POST", "/sf/find-ids", finding.find_ids, 200, _FIND, reads=True, abroad=True),
    Operation("export_records", "GET", _MODEL + "/export", finding.export_records, 200, _EXPORT, _NOTHING, query=("limit", "next"), abroad=True),
    Operation("read_record", "GET", _ONE, finding.read_record, 200, (*_HISTORY, 412), _NOTHING, also=(304,), abroad=True),
    Operation("replace_record", "PUT", _ONE, models.replace_record, 200, _CHANGE, abroad=True, repeatable=True),
    Operation("change_record", "PATCH", _ONE, models.change_record, 200, _CHANGE, abroad=True, repeatable=True),
    Operation("list_functions", "GET", "/api/functions", functions.listing, 200, (400, 401), _NOTHING),
    Operation("call_function", "POST", "/api/functions/{name}", functions.invoke, 200, _CALL),
    Operation("token", "POST", "/oauth2/token", tokens.token, 200, _OAUTH, _FORM, _OPEN, refuse=tokens.refuse),
    Operation("token_slash", "POST", "/oauth2/token/", tokens.token, 200, _OAUTH, _FORM, _OPEN, refuse=tokens.refuse),
    Operation("introspect", "POST", "/oauth2/introspect", tokens.introspect, 200, _OAUTH, _FORM, _OPEN, refuse=tokens.refuse),
    Operation("jwks", "GET", "/oauth2/jwks", tokens.jwks, 200, (400,), _NOTHING, _OPEN, quiet=True),
    Operation("metadata", "GET", "/.well-known/oauth-authorization-server", tokens.metadata, 200, (400,), _NOTHING, _OPEN, quiet=True),
    Operation("create_client", "POST", "/api/clients", clients.create, 201, (*_CLIENTS, 409, 413, 415, 429), access=_ADMIN),
    Operation("list_clients", "GET", "/api/clients", clients.listing, 200, _CLIENTS, _NOTHING, _ADMIN, ("limit", "offset", "environment_id")),
    Operation("show_client", "GET", "/api/clients/{client_id}", clients.one, 200, (*_CLIENTS, 404), _NOTHING, _ADMIN),
    Operation("remove_client", "DELETE", "/api/clients/{client_id}", clients.remove, 204, (*_CLIENTS, 404, 429), _NOTHING, _ADMIN),
    Operation("create_environment", "POST", "/api/environments", environments.create, 201, (*_CLIENTS, 409, 413, 415, 422, 429), access=_ADMIN),
    Operation("list_environments", "GET", "/api/environments", environments.listing, 200, _CLIENTS, _NOTHING, _ADMIN, ("limit", "offset")),
    Operation(
        "remove_environment", "DELETE", "/api/environments/{environment_id}", environments.remove, 204,
        (*_CLIENTS, 404, 409, 429), _NOTHING, _ADMIN, ("records",),
    ),
    Operation("list_keys", "GET", "/api/keys", keys.listing, 200, _CLIENTS, _NOTHING, _ADMIN),
    Operation("rotate_key", "POST", "/api/keys/rotate", keys.rotate, 200, (*_CLIENTS, 404, 409, 413, 415, 422, 429), access=_ADMIN),
    Operation(
        "put_schema", "PUT", _SCHEMA, schemas.put, 200, (*_CLIENTS, 409, 413, 415), access=_ADMIN, query=("dry_run",), also=(201, 202)
    ),
    Operation("put_bait", "PUT", _BAIT, baits.put, 204, (*_CLIENTS, 404, 422), _NOTHING, _ADMIN),
    Operation("show_bait", "GET", _BAIT, baits.one, 200, _CLIENTS, _NOTHING, _ADMIN),
    Operation("remove_bait", "DELETE", _BAIT, baits.remove, 204, (*_CLIENTS, 429), _NOTHING, _ADMIN),
    Operation("list_schemas", "GET", "/api/schemas", schemas.listing, 200, _CLIENTS, _NOTHING, _ADMIN, ("limit", "offset")),
    Operation("show_schema", "GET", _SCHEMA, schemas.one, 200, (*_CLIENTS, 404), _NOTHING, _ADMIN),
    Operation("remove_schema", "DELETE", _SCHEMA, schemas.remove, 204, (*_CLIENTS, 404, 409, 429), _NOTHING, _ADMIN, ("records",)),
    Operation("put_policy", "PUT", _POLICY, policies.put, 200, (*_CLIENTS, 409, 413, 415), access=_ADMIN, also=(201,)),
    Operation("list_policies", "GET", "/api/policies", policies.listing, 200, _CLIENTS, _NOTHING, _ADMIN, ("limit", "offset")),
    Operation("show_policy", "GET", _POLICY, policies.one, 200, (*_CLIENTS, 404), _NOTHING, _ADMIN),
    Operation("remove_policy", "DELETE", _POLICY, policies.remove, 204, (*_CLIENTS, 404, 409, 429), _NOTHING, _ADMIN),
    Operation("openapi", "GET", "/openapi.json", about.openapi, 200, (400, 401), _NOTHING, _OPEN, quiet=True, abroad=True),
    Operation("docs", "GET", "/docs", about.docs, 200, (400,), _NOTHING, _OPEN, quiet=True),
    Operation("upload_attachment", "POST", _FILES, files.upload_attachment, 201, _UPLOAD, Takes.STREAM),
    Operation("replace_attachment", "PUT", _FILES, files.replace_attachment, 201, (*_UPLOAD, 412), Takes.STREAM),
    Operation("change_attachment", "PATCH", _FILES + "/{file_id}", files.change_attachment, 200, (*_UPLOAD, 412)),
    Operation("download_attachment", "GET", _FILES + "/{file_id}", files.download_attachment, 200, (*_DOWNLOAD, 412), _NOTHING, also=(206, 304)),
    Operation("move_attachments", "POST", _MODEL + "/{source}/files/move/{destination}", files.move_attachments, 204, _FILE),
    Operation("delete_attachment", "DELETE", _FILES + "/{file_id}", files.delete_attachment, 204, (*_FILE, 412), _NOTHING),
)  # fmt: skip
