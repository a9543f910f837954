"""``domicile approval``: the requests to a running instance that a second person decides about."""

import contextlib
import json
from typing import Any, Final

from proxy.cli import command
from proxy.cli.backend import running_arguments
from proxy.cli.command import Arguments, Command, argument, argument_list
from proxy.cli.remote import ask_once, remote


def list_approvals_command(arguments: Arguments) -> int:
    """Print the waiting requests, oldest first."""
    with contextlib.closing(remote(arguments)) as instance:
        approvals = instance.listed("/api/approvals")
    lines = [_line(one) for one in approvals] or ["Nothing waits for a second person."]
    return command.show(arguments, {"approvals": approvals}, lines)


def approve(arguments: Arguments) -> int:
    """Approve a request; who asked sends it again then."""
    return _decide(arguments, "approve")


def refuse(arguments: Arguments) -> int:
    """Refuse a request."""
    return _decide(arguments, "refuse")


def _decide(arguments: Arguments, decision: str) -> int:
    path = f"/api/approvals/{arguments.approval}"
    data = ask_once(remote(arguments), "POST", path, {"decision": decision})
    return command.show(arguments, data, _line(data))


def _line(one: Any) -> str:
    request = json.dumps(one["request"], ensure_ascii=False, default=str)
    return (
        f"{one['approval_id']}  {one['state']:<8}  until {one['ends_at']}  by {one['client_id']}  "
        f"{one['operation']} {request}"
    )


_decide_arguments: Final = argument_list(
    running_arguments,
    argument("approval", metavar="ID", help="as `domicile approval list` shows it"),
)  # fmt: skip

COMMAND: Final = Command(
    "List, approve and refuse what needs a second person (setting auth.four_eyes).",
    "domicile approval list --url https://vault.example.com", children={
        "list": Command("List the requests that wait: one's own, and those one may decide.",
            "domicile approval list --json", list_approvals_command, running_arguments),
        "approve": Command("Approve another client's request, which it then sends again.",
            "domicile approval approve k7m2p9xwq4ht6vbd", approve, _decide_arguments),
        "refuse": Command("Refuse another client's request.",
            "domicile approval refuse k7m2p9xwq4ht6vbd", refuse, _decide_arguments),
    },
)  # fmt: skip
