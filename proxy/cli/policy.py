"""``domicile policy``: apply the access policies of files, list them, show one."""

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from proxy.auth.policies import Policies
from proxy.cli import backend, command, remote
from proxy.cli.backend import JsonObject, files_arguments, instance_arguments
from proxy.cli.command import Arguments, Command, argument, argument_list
from proxy.config import Settings
from proxy.config.declarations import read_policies
from proxy.errors import Code, VaultError
from proxy.model.policy import AccessPolicy, refuse_misfit, write_policy
from proxy.model.record import DEFAULT, DEFAULTS
from proxy.vault.schemas import Catalog

if TYPE_CHECKING:
    from proxy.bootstrap.offline import OfflineChanges
    from proxy.net.outbound import EgressPolicy


def apply_policies(arguments: Arguments) -> int:
    """Apply every policy of the files, which are all read first: a fault changes nothing."""
    policies = read_policies(arguments.files).declared

    async def apply(where: OfflinePolicies | RemotePolicies) -> list[dict[str, Any]]:
        for policy in policies:
            await where.check(policy)
        return [await where.apply(policy) for policy in policies]

    results = backend.answer_of(policy_backend, arguments, apply)
    lines = [f"{item['name']}: {'new' if item.pop('created') else 'in force'}" for item in results]
    return command.show(arguments, {"policies": results}, lines)


def list_policies_command(arguments: Arguments) -> int:
    """Print a line for each policy."""
    policies = backend.answer_of(policy_backend, arguments, lambda where: where.listed())
    lines = [
        f"{item['name']}  {item['schema']}  {', '.join(item['actions'])}{_faults(item)}"
        for item in policies
    ]
    return command.show(arguments, {"policies": policies}, lines or ["There is no policy yet."])


def show_policy(arguments: Arguments) -> int:
    """Print one policy."""
    item = backend.answer_of(policy_backend, arguments, lambda where: where.one(arguments.name))
    lines = [f"{item['name']}: {', '.join(item['actions'])} {item['schema']}{_faults(item)}"]
    lines += [f"  {name}  {_sight(sight)}" for name, sight in item["fields"].items()]
    lines += [
        f"  {name}: {_member(item[name])}"
        for name in ("rows", "external_acl", "firewall", "cors", "purpose")
        if name in item
    ]
    lines += [
        f"  does not fit: {fault['source']}: {fault['detail']}" for fault in item.get("faults", ())
    ]
    return command.show(arguments, item, lines)


def _sight(sight: Any) -> str:
    if isinstance(sight, str):
        return sight
    more = sight.get("format") or ", ".join(
        f"{name} {value}" for name, value in sight.get("mask", {}).items()
    )
    return f"{sight['valueType']}: {more}"


def _member(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _faults(item: dict[str, Any]) -> str:
    return "  (does not fit its schema any more)" if item.get("faults") else ""


_show_arguments: Final = argument_list(
    instance_arguments,
    argument("name", metavar="NAME", help="the policy"),
)  # fmt: skip

COMMAND: Final = Command("Apply, list and show access policies.", "domicile policy list", children={
        "apply": Command("Apply the policies of files.", "domicile policy apply support.yaml",
            apply_policies, files_arguments),
        "list": Command("List the policies: schema and actions of each.",
            "domicile policy list --json", list_policies_command, instance_arguments),
        "show": Command("Show what one policy allows and how it shows fields.",
            "domicile policy show support", show_policy, _show_arguments),
    },
)  # fmt: skip


# Both backends show the same: what ``/api/policies`` answers.


class OfflinePolicies:
    """The policies of a vault that no instance runs on."""

    def __init__(
        self,
        policies: Policies,
        catalog: Catalog,
        egress: "EgressPolicy | None",
        record: "OfflineChanges",
    ) -> None:
        self._record = record
        self._policies = policies
        self._catalog = catalog
        self._egress = egress

    async def check(self, policy: AccessPolicy) -> None:
        from proxy.api.access import beyond, schema_of

        refuse_misfit(
            policy, schema_of(self._catalog, policy), DEFAULTS, beyond(policy, self._egress)
        )

    async def apply(self, policy: AccessPolicy) -> JsonObject:
        await self._record.ready()
        created = await self._policies.put(policy)
        self._record.did(policy.name)
        return {**await self.one(policy.name), "created": created}

    async def listed(self) -> Sequence[JsonObject]:
        return [await self.one(policy.name) for policy in self._policies.listed()]

    async def one(self, name: str) -> JsonObject:
        from proxy.api.access import policy_json

        policies = self._policies.find(name)
        if policies is None:
            raise VaultError(Code.NOT_FOUND, "There is no policy of that name.")
        return policy_json(policies, self._catalog, self._egress)


class RemotePolicies(backend.RemoteBackend):
    """The policies of an instance that runs."""

    def __init__(self, instance: remote.Remote) -> None:
        super().__init__(instance, "/api/policies")

    async def check(self, policy: AccessPolicy) -> None:
        """It is checked when it is sent."""

    async def apply(self, policy: AccessPolicy) -> JsonObject:
        answer = self._put(policy.name, write_policy(policy))
        return {**answer.content, "created": answer.status == 201}


@contextlib.asynccontextmanager
async def policy_backend(
    arguments: Arguments, settings: Settings
) -> AsyncIterator[OfflinePolicies | RemotePolicies]:
    """The policies of the instance at ``--url``, else of the stopped vault."""
    if arguments.url is not None:
        with contextlib.closing(remote.remote(arguments)) as instance:
            yield RemotePolicies(instance)
        return
    from proxy.bootstrap.api import policies_of
    from proxy.net.outbound import EgressPolicy

    async with backend.stopped(arguments, settings, "put_policy") as (vault, catalog, record):
        egress = None if vault.environment == DEFAULT else EgressPolicy(settings.acl.allow)
        yield OfflinePolicies(await policies_of(vault), catalog, egress, record)
