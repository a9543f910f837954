"""The table from error codes to HTTP statuses, with an endpoint's ``on_error``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proxy.errors import Code, VaultError
from proxy.redactor.rules import OnError, Verb

STATUS: Final[Mapping[Code, int]] = MappingProxyType(
    {
        Code.BAD_REQUEST: 400,
        Code.URI_TOO_LONG: 414,
        Code.HEADER_TOO_LARGE: 431,
        Code.UNREADABLE_BODY: 415,
        Code.MALFORMED_JSON: 400,
        Code.AMBIGUOUS_JSON: 400,
        Code.AMBIGUOUS_UPLOAD: 400,
        Code.TOO_LARGE: 413,
        Code.METHOD_NOT_ALLOWED: 405,
        Code.REQUEST_TIMEOUT: 408,
        Code.OVERLOADED: 503,
        Code.FIELD_ABSENT: 422,
        Code.VALUE_UNFIT: 422,
        Code.VALUE_INVALID: 422,
        Code.SEARCH_REFUSED: 422,
        Code.FIELD_HIDDEN: 403,
        Code.VALUE_ELSEWHERE: 422,
        Code.OPERATION_DENIED: 403,
        Code.RECORD_EXISTS: 409,
        Code.CONFLICT: 409,
        Code.NOT_FOUND: 404,
        Code.SHAPE_FULL: 507,
        Code.CANNOT_OPEN: 500,
        Code.VAULT_DOWN: 503,
        Code.AUDIT_DOWN: 503,
        Code.INVALID_RECORD: 400,
        Code.INVALID_FILTER: 400,
        Code.INVALID_OPTIONS: 400,
        Code.INVALID_INPUT: 400,
        Code.INVALID_FILE: 400,
        Code.INVALID_SCHEMA: 400,
        Code.INVALID_POLICY: 400,
        Code.POLICY_IN_USE: 409,
        Code.ACCESS_DENIED: 401,
        Code.PURPOSE_REQUIRED: 403,
        Code.UNKNOWN_SCHEMA: 400,
        Code.SCHEMA_OF_RULES: 400,
        Code.SCHEMA_BUSY: 409,
        Code.REPLICAS_RUNNING: 409,
        Code.SCHEMA_IN_USE: 409,
        Code.ENVIRONMENT_IN_USE: 409,
        Code.UNSUPPORTED_MEDIA_TYPE: 415,
        Code.UNPROCESSABLE: 422,
        Code.BATCH_TOO_LARGE: 422,
        Code.TOO_BROAD: 422,
        Code.PARTIAL_MATCH_DISABLED: 401,
        Code.NO_MATCH: 404,
        Code.WRONG_COUNTRY: 409,
        Code.UNAUTHORIZED: 401,
        Code.FORBIDDEN: 403,
        Code.APPROVAL_NEEDED: 403,
        Code.APPROVAL_REFUSED: 403,
        Code.OUTSIDE_COUNTRY: 403,
        Code.TOO_MANY_REQUESTS: 429,
        Code.TOO_MANY_UPLOADS: 429,
        Code.FILE_EXISTS: 409,
        Code.UNKNOWN_FILE: 404,
        Code.RANGE_UNSATISFIABLE: 416,
        Code.PRECONDITION_FAILED: 412,
        Code.FILES_UNAVAILABLE: 503,
        Code.IDEMPOTENCY_CHECK_FAILED: 429,
        Code.UNKNOWN_FUNCTION: 400,
        Code.FUNCTION_FAILED: 500,
        Code.FUNCTION_LIMIT: 503,
        Code.ISSUER_UNREACHABLE: 503,
        Code.FILTER_ENDPOINT_WRONG: 502,
        Code.FILTER_ENDPOINT_LATE: 504,
        Code.UPSTREAM_UNREACHABLE: 502,
        Code.UPSTREAM_TIMEOUT: 504,
        Code.UPSTREAM_BUSY: 503,
        Code.UPSTREAM_SUSPENDED: 503,
        Code.UPSTREAM_BROKEN: 502,
        Code.UNREADABLE_ANSWER: 502,
        Code.ANSWER_TOO_LARGE: 502,
        Code.BAD_SETTINGS: 500,
        Code.BAD_RULES: 500,
        Code.BAD_KEYS: 500,
        Code.BAD_STORE: 500,
        Code.STORE_BUSY: 503,
        Code.NOT_WRITABLE: 507,
        Code.PORT_IN_USE: 500,
        Code.INTERNAL: 500,
    }
)


def proxy_status(
    error: VaultError, on_error: OnError | None = None, verb: Verb | None = None
) -> int:
    """The status to answer with; ``on_error`` and ``verb`` of the matched operation, if any."""
    if on_error is None:
        return STATUS[error.code]
    if error.code in (Code.VAULT_DOWN, Code.AUDIT_DOWN):
        return _vault_down(on_error, verb)
    if error.code is Code.UNREADABLE_ANSWER and on_error.unreadable_answer.isdecimal():
        return int(on_error.unreadable_answer)
    chosen = {
        Code.UNREADABLE_BODY: on_error.unreadable_body,
        Code.AMBIGUOUS_JSON: on_error.ambiguous_json,
        Code.AMBIGUOUS_UPLOAD: on_error.ambiguous_json,
        Code.TOO_LARGE: on_error.too_large,
    }
    return chosen.get(error.code, STATUS[error.code])


def _vault_down(on_error: OnError, verb: Verb | None) -> int:
    """``vault_down_read`` may be no status; then an error has that of the table."""
    if verb is not Verb.READ:
        return on_error.vault_down_write
    read = on_error.vault_down_read
    return int(read) if read.isdecimal() else STATUS[Code.VAULT_DOWN]
