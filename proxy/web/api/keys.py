"""Administration of keys: ``/api/keys``, for administrators of ``default``."""

from typing import Any

from proxy.audit import noting
from proxy.errors import Code, Detail, VaultError
from proxy.model.environment import DEFAULT
from proxy.model.keys import DataKeys, KeyKind, KeysTold
from proxy.web.api import shapes, wire
from proxy.web.api.environments import check_root
from proxy.web.api.operation import Answer, Call, KeyAdministration


async def listing(call: Call) -> Answer:
    """The keys that there are, by id."""
    check_root(call)
    return wire.answer(200, shown(await _keys(call).listed()))


async def rotate(call: Call) -> Answer:
    """Another key of a kind from now on; the answer lists all."""
    check_root(call)
    content = shapes.members(call.content, ("key", "environment_id"), ("key",))
    kind, environment = content["key"], content.get("environment_id", DEFAULT)
    faults = [] if kind in tuple(KeyKind) else [Detail("/key", "Has to be data, master or signing.")]
    if not isinstance(environment, str):
        faults.append(Detail("/environment_id", "Has to be a string."))
    elif "environment_id" in content and kind != KeyKind.DATA:
        faults.append(Detail("/environment_id", "Only data keys belong to an environment."))
    if faults:
        raise VaultError(Code.INVALID_INPUT, "No key can be rotated as described.", tuple(faults))
    noting.about(kind)
    await _keys(call).rotate(KeyKind(kind), environment)
    return wire.answer(200, shown(await _keys(call).listed()))


def _keys(call: Call) -> KeyAdministration:
    keys = call.services.keys
    if keys is None:
        raise TypeError("these services have no keys")
    return keys


def shown(told: KeysTold) -> dict[str, Any]:
    """All keys as administrators see them."""
    return {
        "master": {"key_id": told.master},
        "signing": [{"key_id": kid, "signs": kid == told.signing[-1]} for kid in told.signing],
        "data": [_shown(one) for one in told.environments],
    }


def _shown(one: DataKeys) -> dict[str, Any]:
    return {
        "environment_id": one.environment,
        "keys": [{"key_id": key, "seals": key == one.keys[-1], "used_by": _used(one, key)} for key in one.keys],
        "wrapped_by": one.wrapped_by,
        "sealings": one.sealings,
        "reseal": {
            "state": one.reseal,
            "records": one.resealed,
            "versions": one.versions,
            "contents": one.contents,
            "unreadable": one.unreadable,
        },
    }


def _used(one: DataKeys, key: str) -> dict[str, int] | None:
    """What an older key is still needed for, as the last complete look has found it."""
    if key == one.keys[-1] or one.used is None or key not in one.used:
        return None
    return dict(one.used[key])
