"""Every operation of the vault's own interface, in one literal table.

A line is a promise: the statuses are those of the interface specification, operation by operation,
and the interface document (``document``) is made of this table. 413 stands wherever a JSON body is
read, because its size is limited everywhere.
"""

from typing import Final

from proxy.api import (
    access,
    admin,
    attachments,
    functions,
    legacy_records,
    oauth,
    openapi,
    oversight,
    persons,
    pop,
    rehash,
    schemas,
    search,
)
from proxy.api import records as models
from proxy.api.context import Access, ApiOperation, Takes
from proxy.api.legacy_records import require_own_country
from proxy.api.pop import require_own_environment
from proxy.model.rights import Role
from proxy.model.schema import RECORDS_SCHEMA

# Operations of the record-based family, one line each in the table.
#
# The statuses are those of the interface specification, operation by operation, with three
# additions: 413 wherever a JSON body is read, because its size is limited everywhere; 429 for
# refusals of an ``Idempotency-Key``; and 400 of a delete, because its query parameters are ours: as
# 404 a mistake in one would look like a deleted record. A path that names no country is that of no
# record: 404 as well, where no 400 stands in the specification.

_BASE: Final = "/api/records"
_ONE: Final = "/api/records/{country}/{record_key}"
_RECORD_FILES: Final = _ONE + "/files"
_RECORD_FILE: Final = _RECORD_FILES + "/{file_id}"
_MOVE: Final = "/api/records/{country}/{source}/files/move/{destination}"

_RECORD_NOTHING: Final = Takes.NOTHING
_CASCADE: Final = ("cascadeBy",)
_PAGE: Final = ("limit", "offset")

_WRITE: Final = (400, 401, 409, 413, 415, 422, 429)
_BATCH: Final = (400, 401, 413, 429)
_CLONE: Final = (400, 401, 403, 409, 413, 415, 422, 429)
_RECORD_FIND: Final = (400, 401, 413)
_AGGREGATE: Final = (401, 403, 409, 413, 415, 422, 429)
_RECORD_DELETE: Final = (400, 401, 404, 429)
_HISTORY: Final = (400, 401, 404, 409, 422)
_UPLOAD: Final = (400, 401, 403, 404, 409, 413, 415, 422, 429)
_DOWNLOAD: Final = (401, 403, 404, 416, 422, 429)
_MOVED: Final = (401, 403, 404, 422, 429)

RECORD_OPERATIONS: Final[tuple[ApiOperation, ...]] = (
    ApiOperation("records_create", "POST", _BASE, legacy_records.put_legacy_record, 201, (*_WRITE, 412), schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("records_create_many", "POST", _BASE + "/batch", legacy_records.put_legacy_records, 201, _BATCH, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("records_update_many", "POST", _BASE + "/batch/update", legacy_records.update_legacy_records, 200, _BATCH, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("records_clone", "POST", _BASE + "/clone", legacy_records.clone_legacy_record, 201, _CLONE, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("records_find", "POST", _BASE + "/find", legacy_records.find_legacy_records, 200, _RECORD_FIND, reads=True, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("records_aggregate", "POST", _BASE + "/aggregate", legacy_records.aggregate_legacy_records, 200, _AGGREGATE, reads=True, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("records_delete_many", "POST", _BASE + "/batch/delete", legacy_records.delete_legacy_records, 204, _BATCH, query=_CASCADE, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("records_delete", "DELETE", _ONE, require_own_country(models.delete_record, spelled=False), 204, (*_RECORD_DELETE, 412), _RECORD_NOTHING, query=_CASCADE, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("records_read", "GET", _ONE, require_own_country(legacy_records.show_record), 200, (*_HISTORY, 412), _RECORD_NOTHING, also=(304,), schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation(
        "records_history", "GET", _ONE + "/history", require_own_country(legacy_records.legacy_record_history), 200, _HISTORY, _RECORD_NOTHING, query=(*_PAGE, "next"), schema=RECORDS_SCHEMA, abroad=True
    ),
    ApiOperation("records_upload", "POST", _RECORD_FILES, require_own_country(attachments.upload_attachment), 201, _UPLOAD, Takes.STREAM, schema=RECORDS_SCHEMA),
    ApiOperation("records_replace_file", "PUT", _RECORD_FILES, require_own_country(attachments.replace_attachment), 201, (*_UPLOAD, 412), Takes.STREAM, schema=RECORDS_SCHEMA),
    ApiOperation("records_change_file", "PATCH", _RECORD_FILE, require_own_country(attachments.change_attachment), 200, (*_UPLOAD, 412), schema=RECORDS_SCHEMA),
    ApiOperation("records_download", "GET", _RECORD_FILE, require_own_country(attachments.download_attachment), 200, (*_DOWNLOAD, 412), _RECORD_NOTHING, also=(206, 304), schema=RECORDS_SCHEMA),
    ApiOperation("records_move_files", "POST", _MOVE, require_own_country(attachments.move_attachments), 204, _MOVED, schema=RECORDS_SCHEMA),
    ApiOperation("records_delete_file", "DELETE", _RECORD_FILE, require_own_country(attachments.delete_attachment), 204, (*_MOVED, 412), _RECORD_NOTHING, schema=RECORDS_SCHEMA),
)  # fmt: skip


# Operations of the point-of-presence interface and of rehashes, one line each in the table.
#
# ``POST`` and ``PUT`` of records overwrite, so an existing key is never refused. A wrong ``x-env-
# id`` is 401, like a token of another environment.

_POP: Final = "/v2/storage/records/{country}"
_POP_ONE: Final = "/v2/storage/records/{country}/{record_key}"
_POP_FILE: Final = pop.FILES + "/{file_id}"
_META: Final = _POP_FILE + "/meta"
_ALL: Final = "/api/records/rehash/all"

_NOTHING: Final = Takes.NOTHING
_POP_ADMIN: Final = Access.ADMIN

_READ: Final = (400, 401, 404, 409, 422)
_POP_FIND: Final = (400, 401, 409, 413, 415, 422)
_POP_DELETE: Final = (400, 401, 404, 409, 422, 429)
_DELETE_MANY: Final = (400, 401, 404, 409, 413, 415, 422, 429)
_POP_DOWNLOAD: Final = (400, 401, 403, 404, 409, 416, 422)
_REHASH: Final = (400, 401, 409, 413, 415, 422, 429)
_JOB: Final = (400, 401, 403)

POP_OPERATIONS: Final[tuple[ApiOperation, ...]] = (
    ApiOperation("pop_write", "POST", _POP, require_own_environment(pop.put_pop_record), 201, (*_WRITE, 412), schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_batch_write", "POST", _POP + "/batchWrite", require_own_environment(pop.batch_write), 201, _WRITE, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_find", "POST", _POP + "/find", require_own_environment(pop.search), 200, _POP_FIND, reads=True, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_batch_delete", "POST", _POP + "/batchDelete", require_own_environment(pop.batch_delete), 200, _DELETE_MANY, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_read", "GET", _POP_ONE, require_own_environment(pop.get_pop_record), 200, (*_READ, 412), _NOTHING, also=(304,), schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_delete", "DELETE", _POP_ONE, require_own_environment(pop.delete_pop_record), 200, (*_POP_DELETE, 412), _NOTHING, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation(
        "pop_upload", "POST", pop.FILES, require_own_environment(attachments.upload_attachment), 201, _UPLOAD, Takes.STREAM, named_inside=True, schema=RECORDS_SCHEMA, abroad=True
    ),
    ApiOperation(
        "pop_replace_file", "PUT", pop.FILES, require_own_environment(attachments.replace_attachment), 201, (*_UPLOAD, 412), Takes.STREAM, named_inside=True, schema=RECORDS_SCHEMA, abroad=True
    ),
    ApiOperation("pop_download", "GET", _POP_FILE, require_own_environment(attachments.download_attachment), 200, (*_POP_DOWNLOAD, 412), _NOTHING, also=(206, 304), schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_delete_file", "DELETE", _POP_FILE, require_own_environment(attachments.delete_attachment), 204, (*_POP_DELETE, 412), _NOTHING, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_show_file", "GET", _META, require_own_environment(attachments.show_attachment), 200, _READ, _NOTHING, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_change_file", "PATCH", _META, require_own_environment(attachments.change_attachment), 200, (*_UPLOAD, 412), schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("pop_health", "GET", "/healthcheck", pop.health, 200, (400, 401), _NOTHING, schema=RECORDS_SCHEMA, abroad=True),
    ApiOperation("rehash_records", "POST", "/api/records/rehash", rehash.rehash_records, 200, _REHASH, schema=RECORDS_SCHEMA),
    ApiOperation("resolve_tokens", "POST", "/api/records/rehash/resolve", rehash.resolve_tokens, 200, _POP_FIND, reads=True, schema=RECORDS_SCHEMA),
    ApiOperation("list_tokens", "GET", "/api/records/rehash/tokens", rehash.tokens, 200, _JOB, _NOTHING, _POP_ADMIN, ("limit", "next"), schema=RECORDS_SCHEMA, also=(202,), approval="exports"),
    ApiOperation("begin_rehash", "POST", _ALL, rehash.begin_rehash, 202, (*_JOB, 409, 413, 415, 429), access=_POP_ADMIN, schema=RECORDS_SCHEMA, approval="exports"),
    ApiOperation("show_rehash", "GET", _ALL, rehash.state, 200, _JOB, _NOTHING, _POP_ADMIN, schema=RECORDS_SCHEMA, roles=(Role.OPERATOR,)),
    ApiOperation("stop_rehash", "DELETE", _ALL, rehash.stop_rehash, 200, (*_JOB, 429), _NOTHING, _POP_ADMIN, schema=RECORDS_SCHEMA, roles=(Role.OPERATOR,)),
)  # fmt: skip

_FORM, _NO_BODY = Takes.FORM, Takes.NOTHING
_OPEN, _ADMIN, _BEARER = Access.OPEN, Access.ADMIN, Access.BEARER
_MODEL: Final = "/api/models/{schema}"
_ONE_RECORD: Final = _MODEL + "/{record_key}"
_FILES: Final = "/api/models/{schema}/{record_key}/files"

# Statuses of errors. Those of the model-based family are the specification's, operation by
# operation.
_OAUTH: Final = (400, 401, 408, 413, 429)
_CHANGE: Final = (400, 401, 404, 409, 412, 413, 415, 422, 429)
_FIND: Final = (400, 401, 409, 413, 415, 422, 429)
_DELETE: Final = (400, 401, 404, 409, 429)
_EXPORT: Final = (400, 401, 409, 422)
_PERSON: Final = (400, 401, 403, 409, 413, 415, 422, 429)
_CALL: Final = (400, 401, 413, 415, 429)
_MIGRATE: Final = (400, 401, 404, 409, 422, 429)
_FILE: Final = (401, 403, 404, 422, 429)
_CLIENTS: Final = (400, 401, 403)
_OFFICERS: Final = (Role.ACCESS_OFFICER,)
_LOOKING: Final = (Role.ACCESS_OFFICER, Role.AUDITOR)
_KEYS: Final = (Role.KEY_OFFICER,)
_KEYS_READ: Final = (Role.KEY_OFFICER, Role.AUDITOR)
_LINES: Final = (
    "from", "to", "by", "event", "schema", "record", "environment_id", "limit", "after",
)  # fmt: skip
_SCHEMA: Final = "/api/schemas/{schema}"
_POLICY: Final = "/api/policies/{policy}"
_BAIT: Final = "/api/models/{schema}/{record_key}/bait"

OPERATIONS: Final[tuple[ApiOperation, ...]] = (
    ApiOperation("create_record", "POST", _MODEL, models.create_record, 201, (*_WRITE, 412), abroad=True),
    ApiOperation("create_record_v2", "POST", "/api/v2/models/{schema}", models.create_record_v2, 201, _WRITE, abroad=True),
    ApiOperation("create_records", "POST", _MODEL + "/batch", models.create_records, 201, _WRITE, abroad=True),
    ApiOperation("update_records", "POST", _MODEL + "/batch/update", models.update_records, 201, _WRITE, abroad=True),
    ApiOperation("clone_record", "POST", _MODEL + "/clone", models.clone_record, 201, _CLONE, abroad=True),
    ApiOperation("find_records", "POST", _MODEL + "/find", search.find_records, 200, _FIND, reads=True, abroad=True),
    ApiOperation("aggregate_records", "POST", _MODEL + "/aggregate", search.aggregate_records, 200, _FIND, reads=True, abroad=True),
    ApiOperation("delete_records", "POST", _MODEL + "/batch/delete", models.delete_records, 204, _DELETE_MANY, query=("cascadeBy",), abroad=True),
    ApiOperation("delete_record", "DELETE", _MODEL + "/{record_key}", models.delete_record, 204, (*_DELETE, 412), _NO_BODY, query=("cascadeBy",), abroad=True),
    ApiOperation("record_history", "GET", _MODEL + "/{record_key}/history", search.record_history, 200, _HISTORY, _NO_BODY, query=("limit", "offset", "next"), abroad=True),
    ApiOperation("migrate_record", "POST", _MODEL + "/{source}/migrate/{destination}", models.migrate_record, 204, _MIGRATE, _NO_BODY, abroad=True),
    *RECORD_OPERATIONS,
    *POP_OPERATIONS,
    ApiOperation("find_direct", "POST", "/api/find", search.find_direct, 200, _FIND, reads=True, abroad=True),
    ApiOperation("sf_find", "POST", "/sf/find", search.find_direct, 200, _FIND, reads=True, abroad=True),
    ApiOperation("sf_find_ids", "POST", "/sf/find-ids", search.find_ids, 200, _FIND, reads=True, abroad=True),
    ApiOperation("export_records", "GET", _MODEL + "/export", search.export_records, 200, _EXPORT, _NO_BODY, query=("limit", "next"), abroad=True, also=(202,), approval="exports"),
    ApiOperation("find_person", "POST", "/api/persons/find", persons.find_person, 200, _PERSON, reads=True, query=("next",), also=(202,), approval="exports"),
    ApiOperation("erase_person", "POST", "/api/persons/erase", persons.erase_person, 200, _PERSON, query=("next",), also=(202,), approval="exports"),
    ApiOperation("read_record", "GET", _ONE_RECORD, search.read_record, 200, (*_HISTORY, 412), _NO_BODY, also=(304,), abroad=True),
    ApiOperation("replace_record", "PUT", _ONE_RECORD, models.replace_record, 200, _CHANGE, abroad=True, repeatable=True),
    ApiOperation("change_record", "PATCH", _ONE_RECORD, models.change_record, 200, _CHANGE, abroad=True, repeatable=True),
    ApiOperation("list_functions", "GET", "/api/functions", functions.list_functions, 200, (400, 401), _NO_BODY),
    ApiOperation("call_function", "POST", "/api/functions/{name}", functions.invoke, 200, _CALL),
    ApiOperation("token", "POST", "/oauth2/token", oauth.token, 200, _OAUTH, _FORM, _OPEN, refuse=oauth.oauth_refusal),
    ApiOperation("token_slash", "POST", "/oauth2/token/", oauth.token, 200, _OAUTH, _FORM, _OPEN, refuse=oauth.oauth_refusal),
    ApiOperation("introspect", "POST", "/oauth2/introspect", oauth.introspect, 200, _OAUTH, _FORM, _OPEN, refuse=oauth.oauth_refusal),
    ApiOperation("jwks", "GET", "/oauth2/jwks", oauth.jwks, 200, (400,), _NO_BODY, _OPEN, quiet=True),
    ApiOperation("metadata", "GET", "/.well-known/oauth-authorization-server", oauth.metadata, 200, (400,), _NO_BODY, _OPEN, quiet=True),
    ApiOperation("create_client", "POST", "/api/clients", admin.create_client, 201, (*_CLIENTS, 409, 413, 415, 429), access=_ADMIN, roles=_OFFICERS, also=(202,), approval="access"),
    ApiOperation("list_clients", "GET", "/api/clients", admin.list_clients, 200, _CLIENTS, _NO_BODY, _ADMIN, ("limit", "offset", "environment_id"), roles=_LOOKING),
    ApiOperation("show_client", "GET", "/api/clients/{client_id}", admin.get_client, 200, (*_CLIENTS, 404), _NO_BODY, _ADMIN, roles=_LOOKING),
    ApiOperation("remove_client", "DELETE", "/api/clients/{client_id}", admin.delete_client, 204, (*_CLIENTS, 404, 429), _NO_BODY, _ADMIN, roles=_OFFICERS, also=(202,), approval="access"),
    ApiOperation("create_environment", "POST", "/api/environments", admin.create_environment, 201, (*_CLIENTS, 409, 413, 415, 422, 429), access=_ADMIN, also=(202,), approval="access"),
    ApiOperation("list_environments", "GET", "/api/environments", admin.list_environments, 200, _CLIENTS, _NO_BODY, _ADMIN, ("limit", "offset"), roles=_LOOKING),
    ApiOperation(
        "remove_environment", "DELETE", "/api/environments/{environment_id}", admin.delete_environment, 204,
        (*_CLIENTS, 404, 409, 429), _NO_BODY, _ADMIN, ("records",), also=(202,), approval="access",
    ),
    ApiOperation("list_keys", "GET", "/api/keys", admin.list_keys, 200, _CLIENTS, _NO_BODY, _ADMIN, roles=_KEYS_READ),
    ApiOperation("rotate_key", "POST", "/api/keys/rotate", admin.rotate_keys, 200, (*_CLIENTS, 404, 409, 413, 415, 422, 429), access=_ADMIN, roles=_KEYS, also=(202,), approval="keys"),
    ApiOperation(
        "put_schema", "PUT", _SCHEMA, schemas.put_schema, 200, (*_CLIENTS, 409, 413, 415), access=_ADMIN, query=("dry_run",), also=(201, 202)
    ),
    ApiOperation("put_bait", "PUT", _BAIT, oversight.put_honeytoken, 204, (*_CLIENTS, 404, 422), _NO_BODY, _ADMIN),
    ApiOperation("show_bait", "GET", _BAIT, oversight.get_honeytoken, 200, _CLIENTS, _NO_BODY, _ADMIN),
    ApiOperation("remove_bait", "DELETE", _BAIT, oversight.delete_honeytoken, 204, (*_CLIENTS, 429), _NO_BODY, _ADMIN, also=(202,), approval="access"),
    ApiOperation("list_schemas", "GET", "/api/schemas", schemas.list_schemas, 200, _CLIENTS, _NO_BODY, _ADMIN, ("limit", "offset"), roles=_LOOKING),
    ApiOperation("show_schema", "GET", _SCHEMA, schemas.get_schema, 200, (*_CLIENTS, 404), _NO_BODY, _ADMIN, roles=_LOOKING),
    ApiOperation("remove_schema", "DELETE", _SCHEMA, schemas.delete_schema, 204, (*_CLIENTS, 404, 409, 429), _NO_BODY, _ADMIN, ("records",), also=(202,), approval="access"),
    ApiOperation("put_policy", "PUT", _POLICY, access.put_policy, 200, (*_CLIENTS, 409, 413, 415), access=_ADMIN, query=("dry_run",), also=(201, 202), roles=_OFFICERS, approval="access"),
    ApiOperation("list_policies", "GET", "/api/policies", access.list_policies, 200, _CLIENTS, _NO_BODY, _ADMIN, ("limit", "offset"), roles=_LOOKING),
    ApiOperation("show_policy", "GET", _POLICY, access.get_policy, 200, (*_CLIENTS, 404), _NO_BODY, _ADMIN, roles=_LOOKING),
    ApiOperation("remove_policy", "DELETE", _POLICY, access.delete_policy, 204, (*_CLIENTS, 404, 409, 429), _NO_BODY, _ADMIN, roles=_OFFICERS, also=(202,), approval="access"),
    ApiOperation("list_audit", "GET", "/api/audit", oversight.list_audit, 200, _CLIENTS, _NO_BODY, _ADMIN, _LINES, roles=(Role.AUDITOR,)),
    ApiOperation("verify_audit", "GET", "/api/audit/verify", oversight.audit_findings, 200, (*_CLIENTS, 409), _NO_BODY, _ADMIN, roles=(Role.AUDITOR,)),
    ApiOperation("list_approvals", "GET", "/api/approvals", oversight.list_approvals, 200, _CLIENTS, _NO_BODY, _BEARER, ("limit", "offset")),
    ApiOperation("decide_approval", "POST", "/api/approvals/{approval_id}", oversight.decide_approval, 200, (*_CLIENTS, 404, 409, 413, 415, 429), access=_BEARER),
    ApiOperation("take_role", "POST", "/api/emergency", oversight.take_role, 201, (*_CLIENTS, 409, 413, 415, 429), access=_BEARER),
    ApiOperation("end_role", "DELETE", "/api/emergency", oversight.end_role, 204, (*_CLIENTS, 429), _NO_BODY, _BEARER),
    ApiOperation("reload", "POST", "/api/reload", oversight.reload_files, 200, (*_CLIENTS, 429), _NO_BODY, _ADMIN, roles=(Role.OPERATOR,), also=(202,), approval="access"),
    ApiOperation("openapi", "GET", "/openapi.json", openapi.openapi, 200, (400, 401), _NO_BODY, _OPEN, quiet=True, abroad=True),
    ApiOperation("docs", "GET", "/docs", openapi.docs, 200, (400,), _NO_BODY, _OPEN, quiet=True),
    ApiOperation("docs_file", "GET", "/docs/{file}", openapi.docs, 200, (400, 404), _NO_BODY, _OPEN, quiet=True),
    ApiOperation("upload_attachment", "POST", _FILES, attachments.upload_attachment, 201, _UPLOAD, Takes.STREAM),
    ApiOperation("replace_attachment", "PUT", _FILES, attachments.replace_attachment, 201, (*_UPLOAD, 412), Takes.STREAM),
    ApiOperation("change_attachment", "PATCH", _FILES + "/{file_id}", attachments.change_attachment, 200, (*_UPLOAD, 412)),
    ApiOperation("download_attachment", "GET", _FILES + "/{file_id}", attachments.download_attachment, 200, (*_DOWNLOAD, 412), _NO_BODY, also=(206, 304)),
    ApiOperation("move_attachments", "POST", _MODEL + "/{source}/files/move/{destination}", attachments.move_attachments, 204, _FILE),
    ApiOperation("delete_attachment", "DELETE", _FILES + "/{file_id}", attachments.delete_attachment, 204, (*_FILE, 412), _NO_BODY),
)  # fmt: skip
