"""``domicile release``: turn an application's tokens back into values, record by record.

The reverse of ``domicile adopt``, for leaving; the vault keeps its data.
"""

from typing import Final

from proxy.cli.adopt import walk_arguments, walk_records
from proxy.cli.command import Arguments, Command, argument, argument_list
from proxy.cli.walk import WalkDirection
from proxy.errors import Code, VaultError
from proxy.redactor.tools.adoption import clear_for
from proxy.redactor.tools.adoption_records import ReadRecord, RecordState, WalkPlan


def run(arguments: Arguments) -> int:
    """Release; status 1 where a record is left with tokens, with the reason of each refusal."""
    return walk_records(arguments, lambda plan: _direction(plan, arguments.role))


def _direction(plan: WalkPlan, role: str) -> WalkDirection:
    """Raises ``VaultError`` where something else than values might be taken for them."""
    name = plan.endpoint.name
    if not clear_for(plan, role):
        raise VaultError(
            Code.BAD_SETTINGS,
            f"Callers of {name} see by their role: name with --role one whose view shows every "
            f"field of {plan.entity.name} clear, and prove it with --header.",
        )
    if plan.endpoint.on_error.vault_down_read in ("default", "tokens"):
        raise VaultError(
            Code.BAD_RULES,
            f"The rules of {name} show tokens while the vault is down, and a token must not be "
            "taken for a value: write on_error: {vault_down: {read: 503}} while releasing.",
        )

    def unfit(record: ReadRecord) -> str:
        masked = bool(plan.endpoint.views) and plan.masked(record)
        return "a value looks like a mask: has the caller the role of --role?" if masked else ""

    todo = frozenset((RecordState.TOKENS, RecordState.MIXED))
    return WalkDirection("release", todo, through_proxy=False, unfit=unfit)


_arguments: Final = argument_list(
    walk_arguments,
    argument("--role", default="", help="role of the caller, where the rules have views by role"),
)  # fmt: skip

COMMAND: Final = Command("Give an application its clear values back, record by record; resumable.",
    "domicile release --dry-run contact", run, _arguments)  # fmt: skip
