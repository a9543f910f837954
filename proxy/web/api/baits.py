"""Handlers that mark records as bait: nobody has a reason to look at them, and whoever does raises an alarm."""

from proxy.audit.baits import Bait
from proxy.errors import Code, VaultError
from proxy.web.api import wire
from proxy.web.api.operation import Answer, Call

_DONE = Answer(204)


async def put(call: Call) -> Answer:
    """Mark a record that is there."""
    witness, schema, key = call.services.audit.witness, call.path["schema"], call.path["record_key"]
    records = call.space.catalog.records(schema)
    rows = await records.collection.by_key([key])
    if key not in rows:
        raise VaultError(Code.NOT_FOUND, f"There is no such record of {records.name!r}.")
    await witness.baits.add(Bait(_mark(call), call.principal.environment, schema, rows[key].rid))
    return _DONE


async def one(call: Call) -> Answer:
    """Whether a record is marked."""
    call.space.catalog.records(call.path["schema"])
    return wire.answer(200, {"bait": _mark(call) in call.services.audit.witness.baits})


async def remove(call: Call) -> Answer:
    """Make it an ordinary record again; one that has gone meanwhile, too."""
    call.space.catalog.records(call.path["schema"])
    await call.services.audit.witness.baits.remove(_mark(call))
    return _DONE


def _mark(call: Call) -> str:
    return call.services.audit.witness.mark(call.principal.environment, call.path["schema"], call.path["record_key"])
