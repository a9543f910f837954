"""The operations of the point-of-presence interface, and those of rehashes: their lines of the table.

``POST`` and ``PUT`` of records overwrite, so none is refused because a key is used. A wrong ``x-env-id`` is 401, as a token is that
is for somebody else.
"""

from typing import Final

from proxy.model.builtin import RECORDS
from proxy.web.api import files, pop, rehash
from proxy.web.api.operation import Access, Operation, Takes
from proxy.web.api.pop import here

_BASE: Final = "/v2/storage/records/{country}"
_ONE: Final = "/v2/storage/records/{country}/{record_key}"
_FILE: Final = pop.FILES + "/{file_id}"
_META: Final = _FILE + "/meta"
_ALL: Final = "/api/records/rehash/all"

_NOTHING: Final = Takes.NOTHING
_ADMIN: Final = Access.ADMIN

_WRITE: Final = (400, 401, 409, 413, 415, 422, 429)
_READ: Final = (400, 401, 404, 409, 422)
_FIND: Final = (400, 401, 409, 413, 415, 422)
_DELETE: Final = (400, 401, 404, 409, 422, 429)
_DELETE_MANY: Final = (400, 401, 404, 409, 413, 415, 422, 429)
_UPLOAD: Final = (400, 401, 403, 404, 409, 413, 415, 422, 429)
_DOWNLOAD: Final = (400, 401, 403, 404, 409, 416, 422)
_REHASH: Final = (400, 401, 409, 413, 415, 422, 429)
_JOB: Final = (400, 401, 403)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("pop_write", "POST", _BASE, here(pop.write), 201, (*_WRITE, 412), schema=RECORDS, abroad=True),
    Operation("pop_batch_write", "POST", _BASE + "/batchWrite", here(pop.batch_write), 201, _WRITE, schema=RECORDS, abroad=True),
    Operation("pop_find", "POST", _BASE + "/find", here(pop.search), 200, _FIND, reads=True, schema=RECORDS, abroad=True),
    Operation("pop_batch_delete", "POST", _BASE + "/batchDelete", here(pop.batch_delete), 200, _DELETE_MANY, schema=RECORDS, abroad=True),
    Operation("pop_read", "GET", _ONE, here(pop.read), 200, (*_READ, 412), _NOTHING, also=(304,), schema=RECORDS, abroad=True),
    Operation("pop_delete", "DELETE", _ONE, here(pop.delete), 200, (*_DELETE, 412), _NOTHING, schema=RECORDS, abroad=True),
    Operation(
        "pop_upload", "POST", pop.FILES, here(files.upload_attachment), 201, _UPLOAD, Takes.STREAM, named_inside=True, schema=RECORDS, abroad=True
    ),
    Operation(
        "pop_replace_file", "PUT", pop.FILES, here(files.replace_attachment), 201, (*_UPLOAD, 412), Takes.STREAM, named_inside=True, schema=RECORDS, abroad=True
    ),
    Operation("pop_download", "GET", _FILE, here(files.download_attachment), 200, (*_DOWNLOAD, 412), _NOTHING, also=(206, 304), schema=RECORDS, abroad=True),
    Operation("pop_delete_file", "DELETE", _FILE, here(files.delete_attachment), 204, (*_DELETE, 412), _NOTHING, schema=RECORDS, abroad=True),
    Operation("pop_show_file", "GET", _META, here(files.show_attachment), 200, _READ, _NOTHING, schema=RECORDS, abroad=True),
    Operation("pop_change_file", "PATCH", _META, here(files.change_attachment), 200, (*_UPLOAD, 412), schema=RECORDS, abroad=True),
    Operation("pop_health", "GET", "/healthcheck", pop.health, 200, (400, 401), _NOTHING, schema=RECORDS, abroad=True),
    Operation("rehash_records", "POST", "/api/records/rehash", rehash.rehash, 200, _REHASH, schema=RECORDS),
    Operation("resolve_tokens", "POST", "/api/records/rehash/resolve", rehash.resolve, 200, _FIND, reads=True, schema=RECORDS),
    Operation("list_tokens", "GET", "/api/records/rehash/tokens", rehash.tokens, 200, _JOB, _NOTHING, _ADMIN, ("limit", "next"), schema=RECORDS),
    Operation("begin_rehash", "POST", _ALL, rehash.begin, 202, (*_JOB, 409, 413, 415, 429), access=_ADMIN, schema=RECORDS),
    Operation("show_rehash", "GET", _ALL, rehash.state, 200, _JOB, _NOTHING, _ADMIN, schema=RECORDS),
    Operation("stop_rehash", "DELETE", _ALL, rehash.stop, 200, (*_JOB, 429), _NOTHING, _ADMIN, schema=RECORDS),
)  # fmt: skip
