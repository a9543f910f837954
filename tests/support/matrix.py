"""Who meets what: every operation of the interface and every kind of caller, as one table.

A line is an operation; what it says is put together with the kinds of callers by ``expected``.
Words for what is met:

==========
======================================================================================================
``ok``      what the first example of the document answers ``empty``   the same status, with nothing
of the records that are there ``denied``  ``access_denied``, with the status that the specification
leaves for it others      status and code, written out
==========
======================================================================================================
"""

import json
from typing import Any, Final, NamedTuple

from proxy.auth.external_acl import ACTIONS
from proxy.errors import Code, VaultError


class Line(NamedTuple):
    """What one operation answers to whom."""

    needs: str  #: actions that a policy has to allow: r, w, d; or ``admin``, ``open``, ``any``
    denied: int = 401
    rows: str = "ok"  #: to a caller for whom its record is not there
    none: str = "denied"  #: where the filter endpoint allows nothing
    some: str = ""  #: where it allows only what ends with 2 or 9; as ``none``
    hidden: str = "ok"  #: to a caller from whom ``name`` and ``body`` are hidden
    stranger: str = "400 unknown_schema"  #: to a client of another environment


_GONE: Final = "404 not_found"
_NO_MATCH: Final = "403 no_match"
_OWN: Final = "ok"  # each environment has records of the record-based family
# the environment that the request names is not that of the token
_NOT_HERE: Final = "401 unauthorized"

_FIND: Final = Line("r", rows="empty", none="empty", some="ok")
_READ: Final = Line("r", rows=_GONE, none=_GONE)
_CREATE: Final = Line("w", some="ok")
_DELETE: Final = Line("d", rows=_GONE)
_FILE: Final = Line("w", 403, _GONE, stranger="404 unknown_schema")
_ADMIN: Final = Line("admin")
_OPEN: Final = Line("open")

TABLE: Final[dict[str, Line]] = {
    "create_record": _CREATE,
    "create_record_v2": _CREATE,
    "create_records": _CREATE,
    "update_records": Line("w", rows="empty"),
    "clone_record": Line("rw", 403, _NO_MATCH, _NO_MATCH),
    "find_records": _FIND,
    "aggregate_records": Line("r"),
    "delete_records": Line("d", rows="404 no_match"),
    "delete_record": _DELETE,
    "record_history": _READ,
    "read_record": _READ._replace(some="ok"),
    "replace_record": Line("w", rows=_GONE),
    "change_record": Line("w", rows=_GONE),
    "migrate_record": Line("wd", rows=_GONE),
    "find_direct": _FIND,
    "sf_find": _FIND,
    "sf_find_ids": _FIND,
    "export_records": Line("r", none="empty", some="ok"),
    "upload_attachment": _FILE._replace(stranger="400 unknown_schema"),
    "replace_attachment": _FILE._replace(stranger="400 unknown_schema"),
    "change_attachment": _FILE._replace(stranger="400 unknown_schema"),
    "download_attachment": Line("r", 403, _GONE, _GONE, stranger="404 unknown_schema"),
    "move_attachments": _FILE,
    "delete_attachment": _FILE,
    "records_create": _CREATE._replace(rows="denied", hidden="400 invalid_record", stranger=_OWN),
    "records_create_many": _CREATE._replace(rows="denied", hidden="400 invalid_record", stranger=_OWN),
    "records_update_many": Line("w", rows="empty", stranger="empty"),
    "records_clone": Line("rw", 403, _NO_MATCH, _NO_MATCH, stranger=_NO_MATCH),
    "records_find": Line("r", rows="empty", none="empty", stranger="empty"),
    "records_aggregate": Line("r", 403, stranger="empty"),
    "records_delete_many": Line("d", stranger="400 no_match"),
    "records_delete": _DELETE._replace(stranger=_GONE),
    "records_history": _READ._replace(stranger=_GONE),
    "records_read": _READ._replace(stranger=_GONE),
    "records_upload": _FILE._replace(stranger=_GONE),
    "records_replace_file": _FILE._replace(stranger=_GONE),
    "records_change_file": _FILE._replace(stranger=_GONE),
    "records_download": Line("r", 403, _GONE, _GONE, stranger=_GONE),
    "records_move_files": _FILE._replace(stranger=_GONE),
    "records_delete_file": _FILE._replace(stranger=_GONE),
    "pop_write": _CREATE._replace(rows="denied", stranger=_NOT_HERE),
    "pop_batch_write": _CREATE._replace(rows="denied", stranger=_NOT_HERE),
    "pop_find": Line("r", rows="empty", none="empty", stranger=_NOT_HERE),
    "pop_batch_delete": Line("d", stranger=_NOT_HERE),
    "pop_read": _READ._replace(stranger=_NOT_HERE),
    "pop_delete": _DELETE._replace(stranger=_NOT_HERE),
    "pop_upload": Line("w", rows=_GONE, stranger=_NOT_HERE),
    "pop_replace_file": Line("w", rows=_GONE, stranger=_NOT_HERE),
    "pop_download": _READ._replace(stranger=_NOT_HERE),
    "pop_delete_file": Line("w", rows=_GONE, stranger=_NOT_HERE),
    "pop_show_file": _READ._replace(stranger=_NOT_HERE),
    "pop_change_file": Line("w", rows=_GONE, stranger=_NOT_HERE),
    "pop_health": Line("r", none="ok", stranger=_NOT_HERE),
    "rehash_records": Line("rw", rows="empty", none="empty", hidden="400 invalid_input", stranger="empty"),
    "resolve_tokens": Line("r", none="ok", stranger="empty"),
    "find_person": Line("r", none="empty", some="ok", stranger="empty"),
    "erase_person": Line("rd", none="empty", some="ok", stranger="empty"),
    "list_approvals": Line("any", none="ok", stranger="ok"),
    "end_role": Line("any", none="ok", stranger="ok"),
    "list_functions": Line("any", none="ok", stranger="ok"),
    # What a function may not read fails inside it, and what fails inside it is told to nobody.
    "call_function": Line("f", 500, none="empty", some="ok", stranger="500 function_failed"),
    **dict.fromkeys(("token", "introspect", "jwks", "metadata", "openapi", "docs", "docs_file"), _OPEN),
    **dict.fromkeys(
        (
            "list_tokens", "begin_rehash", "show_rehash", "stop_rehash", "create_client", "list_clients", "show_client",
            "remove_client", "create_environment", "list_environments", "remove_environment", "put_schema", "list_schemas",
            "show_schema", "remove_schema", "put_policy", "list_policies", "show_policy", "remove_policy", "put_bait", "show_bait",
            "remove_bait", "list_keys", "rotate_key", "list_audit", "verify_audit", "reload",
            "decide_approval", "take_role",
        ),
        _ADMIN,
    ),
}  # fmt: skip

#: Further spellings of operations in the table.
ALIASES: Final = {"token_slash": "token"}

#: What a policy of each kind says besides its schema: for contacts, and for the record-based
#: family.
_SECRET: Final = {"contact": "name", "records": "body"}
_THERE: Final[dict[str, Any]] = {"contact": {"city": "Lund"}, "records": {"profile_key": "p-2"}}
_ALL: Final = ["read", "write", "delete"]

#: Kinds of callers under policies; ``acl-…`` names what their filter endpoint does.
UNDER: Final = (
    "everything", "read-only", "write-only", "delete-only", "hidden", "redacted", "masked", "rows",
    "acl-none", "acl-some", "acl-all", "acl-broken", "acl-late", "acl-no-token",
)  # fmt: skip

#: All kinds but the administrator, who meets what the examples of the document say
#: (``tests/conformance/test_interface_examples.py``).
CALLERS: Final = ("nobody", "expired", "stranger", "outside", "too-often", *UNDER)


def policy(kind: str, schema: str) -> dict[str, Any]:
    """The body of the policy of such a caller."""
    word, _, rest = kind.partition("-")
    acts = [word] if rest == "only" else _ALL
    made: dict[str, Any] = {"schema": schema, "actions": acts}
    shown = {
        "redacted": {"valueType": "redacted", "format": "[a-z]{12}"},
        "masked": "masked",
        "hidden": "hidden",
    }
    if kind in shown:
        made["fields"] = {_SECRET[schema]: shown[kind]}
    if kind == "rows":
        made["rows"] = {"filter": _THERE[schema]}
    if word == "acl":
        made["external_acl"] = f"https://acl.example.com/{'all' if rest == 'no-token' else rest}"
    return made


class Endpoint:
    """The customer's filter endpoint, without a network: what it answers stands in its address."""

    async def ask(self, url: str, token: str, question: bytes) -> bytes:
        assert token == "somebody"
        asked = json.loads(question)
        (primary,) = asked.keys() - {"action", "type"}
        assert asked["action"] in ACTIONS.values()
        assert asked["type"] in _SECRET
        keys = asked[primary]
        match url.rpartition("/")[2]:
            case "none":
                return json.dumps({primary: []}).encode()
            case "some":
                return json.dumps(
                    {primary: [key for key in keys if key.endswith(("2", "9"))]}
                ).encode()
            case "all":
                return json.dumps({primary: "*"}).encode()
            case "late":
                raise VaultError(Code.FILTER_ENDPOINT_LATE, "It did not answer in time.")
            case _:
                return json.dumps({primary: "*", "more": True}).encode()


def expected(operation: str, caller: str) -> str:
    """What the caller meets: a word, or status and code."""
    line = TABLE[operation]
    if caller == "outside":
        return "403 outside_country"
    # who shows a token wants the schemas in it
    if operation == "openapi" and caller in ("expired", "too-often"):
        return "401 unauthorized" if caller == "expired" else "429 too_many_requests"
    if line.needs == "open":
        return "ok"
    if caller in ("nobody", "expired"):
        return "401 unauthorized"
    if caller == "too-often":
        return "429 too_many_requests"
    if line.needs == "admin":
        return "403 forbidden"
    if caller == "stranger":
        return line.stranger
    return _under(operation, line, caller)


def _under(operation: str, line: Line, caller: str) -> str:
    denied = "500 function_failed" if line.needs == "f" else f"{line.denied} access_denied"
    found = "ok"
    if caller.endswith("-only"):
        allowed = {"read-only": "rf", "write-only": "w", "delete-only": "d"}[caller]
        found = "ok" if line.needs == "any" or set(line.needs) <= set(allowed) else "denied"
    elif caller in ("hidden", "redacted", "masked"):
        found = line.hidden if caller == "hidden" or operation == "rehash_records" else "ok"
    elif caller == "rows":
        found = line.rows
    elif caller.startswith("acl-"):
        found = _filtered(operation, line, caller.removeprefix("acl-"))
    return denied if found == "denied" else found


def _filtered(operation: str, line: Line, answer: str) -> str:
    if answer == "no-token" and line.needs not in ("any", "f"):
        return "401 unauthorized"  # without the token of a person nobody can be asked about one
    if operation in ("list_functions", "list_approvals", "end_role", "pop_health"):
        return "ok"  # no record is asked for
    if operation in ("aggregate_records", "records_aggregate"):
        return "denied"  # groups would tell of records that are not allowed
    if answer == "all":
        return "ok"
    if answer in ("none", "some"):
        return line.none if answer == "none" else line.some or line.none
    if line.needs == "f":
        return "500 function_failed"
    return {"broken": "502 filter_endpoint_wrong", "late": "504 filter_endpoint_late"}[answer]
