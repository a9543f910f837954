"""The operations of the record-based family: their lines of the table.

The statuses are those of the interface specification, operation by operation; beside them stand those that come from elsewhere:
413 wherever a JSON body is read, because its size is limited everywhere; 429 for what an ``Idempotency-Key`` forbids; and 400 of
a delete, because its query parameters are ours: as 404 a mistake in one would look like a record that is gone.
"""

from typing import Final

from proxy.model.builtin import RECORDS
from proxy.web.api import files, models, records
from proxy.web.api.operation import Operation, Takes
from proxy.web.api.records import here

_BASE: Final = "/api/records"
_ONE: Final = "/api/records/{country}/{record_key}"
_FILES: Final = _ONE + "/files"
_FILE: Final = _FILES + "/{file_id}"
_MOVE: Final = "/api/records/{country}/{source}/files/move/{destination}"

_NOTHING: Final = Takes.NOTHING
_CASCADE: Final = ("cascadeBy",)
_PAGE: Final = ("limit", "offset")

_WRITE: Final = (400, 401, 409, 413, 415, 422, 429)
_BATCH: Final = (400, 401, 413, 429)
_CLONE: Final = (400, 401, 403, 409, 413, 415, 422, 429)
_FIND: Final = (400, 401, 413)
_AGGREGATE: Final = (401, 403, 409, 413, 415, 422, 429)
_DELETE: Final = (400, 401, 404, 429)
_HISTORY: Final = (400, 401, 404, 409, 422)
_UPLOAD: Final = (400, 401, 403, 404, 409, 413, 415, 422, 429)
_DOWNLOAD: Final = (401, 403, 404, 416, 422, 429)
_MOVED: Final = (401, 403, 404, 422, 429)


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("records_create", "POST", _BASE, records.create_record, 201, (*_WRITE, 412), schema=RECORDS, abroad=True),
    Operation("records_create_many", "POST", _BASE + "/batch", records.create_records, 201, _BATCH, schema=RECORDS, abroad=True),
    Operation("records_update_many", "POST", _BASE + "/batch/update", records.update_records, 200, _BATCH, schema=RECORDS, abroad=True),
    Operation("records_clone", "POST", _BASE + "/clone", records.clone_record, 201, _CLONE, schema=RECORDS, abroad=True),
    Operation("records_find", "POST", _BASE + "/find", records.find_records, 200, _FIND, reads=True, schema=RECORDS, abroad=True),
    Operation("records_aggregate", "POST", _BASE + "/aggregate", records.aggregate_records, 200, _AGGREGATE, reads=True, schema=RECORDS, abroad=True),
    Operation("records_delete_many", "POST", _BASE + "/batch/delete", records.delete_records, 204, _BATCH, query=_CASCADE, schema=RECORDS, abroad=True),
    Operation("records_delete", "DELETE", _ONE, here(models.delete_record), 204, (*_DELETE, 412), _NOTHING, query=_CASCADE, schema=RECORDS, abroad=True),
    Operation("records_read", "GET", _ONE, here(records.show_record), 200, (*_HISTORY, 412), _NOTHING, also=(304,), schema=RECORDS, abroad=True),
    Operation(
        "records_history", "GET", _ONE + "/history", here(records.record_history), 200, _HISTORY, _NOTHING, query=_PAGE, schema=RECORDS, abroad=True
    ),
    Operation("records_upload", "POST", _FILES, here(files.upload_attachment), 201, _UPLOAD, Takes.STREAM, schema=RECORDS),
    Operation("records_replace_file", "PUT", _FILES, here(files.replace_attachment), 201, (*_UPLOAD, 412), Takes.STREAM, schema=RECORDS),
    Operation("records_change_file", "PATCH", _FILE, here(files.change_attachment), 200, (*_UPLOAD, 412), schema=RECORDS),
    Operation("records_download", "GET", _FILE, here(files.download_attachment), 200, (*_DOWNLOAD, 412), _NOTHING, also=(206, 304), schema=RECORDS),
    Operation("records_move_files", "POST", _MOVE, here(files.move_attachments), 204, _MOVED, schema=RECORDS),
    Operation("records_delete_file", "DELETE", _FILE, here(files.delete_attachment), 204, (*_MOVED, 412), _NOTHING, schema=RECORDS),
)  # fmt: skip
