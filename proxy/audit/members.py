"""Every member that a line may have, in one table, and the events it tells of. None ever holds a value of a record."""

import enum
from typing import Any, Final

import msgspec


class Event(enum.StrEnum):
    """What a line tells of."""

    REVEAL = "reveal"  #: values of records, or figures over them, left the vault in the clear
    WRITE = "write"  #: records or their attachments were made or changed
    DELETE = "delete"  #: records or their attachments were ended
    ADMIN = "admin"  #: clients, schemas, policies, environments or keys were looked at or changed
    TOKEN = "token"  #: an access token was given, or looked at
    REFUSED = "refused"  #: a request was answered with an error
    ALARM = "alarm"  #: somebody has to look: a bait was revealed, or the log or a row of the store was tampered with
    LOG = "log"  #: the log itself: started, stopped, written again after it could not be, old lines removed


#: Member → what it holds, in the order in which members stand in a line.
MEMBERS: Final[dict[str, str]] = {
    "n": "number of the line; one more than that of the line before",
    "at": "the instant, UTC, ISO 8601 with milliseconds",
    "event": "reveal, write, delete, admin, token, refused, alarm or log",
    "via": "interface, proxy or command: the way it came",
    "by": "the client of the interface; of a command, the user of the machine who ran it",
    "environment": "the environment",
    "endpoint": "the endpoint, as the rule file names it",
    "operation": "the operation of the interface document, or as the rule file writes its match",
    "status": "the status of the answer",
    "code": "the code of the error, as it was answered",
    "schema": "the schema of the records",
    "count": "how many records; of refused, how many requests",
    "records": "which records: keyed hashes of their keys; `domicile audit tail --record` finds one",
    "fields": "the fields that were in the clear, by name",
    "revealed": "the fields whose values stood in the answer to a write, by name",
    "covered": "the fields that were redacted or masked, by name",
    "files": "ids of attachments",
    "subject": "the client, schema, policy, environment or key that was looked at or changed",
    "reason": "a constant text that says why",
    "since": "the instant when it happened, of what could not be written then",
    "prev": "the hash of the line before",
    "hash": "the keyed hash of this line",
}

_encode = msgspec.json.Encoder(enc_hook=str).encode


def body(event: Event, **given: Any) -> bytes:
    """The members of a line that say what happened, without its braces; what is ``None`` or empty is left out."""
    unknown = given.keys() - MEMBERS.keys()
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} may not stand in an audit line: add it to MEMBERS")
    told = {name: given[name] for name in MEMBERS if given.get(name) not in (None, "", [], ())}
    return _encode({"event": event.value, **told})[1:-1]
