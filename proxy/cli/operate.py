"""Short commands to a running instance: ``token``, ``reload``, ``emergency`` and ``approval``."""

import contextlib
import json
from typing import Any, Final

from proxy.cli import command
from proxy.cli.command import FAULT, OK, Arguments, Command, argument, argument_list
from proxy.cli.options import optional_url, running_arguments
from proxy.cli.remote import administered, ask_once, remote
from proxy.model.rights import Role


def print_token(arguments: Arguments) -> int:
    """Print a token of the client that the environment names, and nothing else."""
    with contextlib.closing(administered(arguments)) as instance:
        token = instance.new_token()
        data = {"access_token": token, "token_type": "Bearer", "vault_url": instance.url}
    return command.show(arguments, data, token)


_token_arguments: Final = argument_list(
    optional_url("the vault listener of the settings"),
    # a token is a client's, and over the socket there is none
    lambda parser: parser.set_defaults(prepare=None),
)

TOKEN_COMMAND: Final = Command("Print an access token of a running instance, for scripts.",
    "domicile token --url https://se-vault.example.com", print_token, _token_arguments)  # fmt: skip


def reload(arguments: Arguments) -> int:
    """Exit status 0 if everything that was read is active."""
    data = ask_once(remote(arguments), "POST", "/api/reload")
    lines = [f"{what}: {state}" for what, state in data["checks"].items()]
    command.show(arguments, data, lines)
    return OK if all(state == "ok" for state in data["checks"].values()) else FAULT


RELOAD_COMMAND: Final = Command(
    "Load rules, schemas, policies and certificates of a running instance again.",
    "domicile reload --url https://vault.example.com", reload, running_arguments)  # fmt: skip


def take(arguments: Arguments) -> int:
    """Take the role, and print until when."""
    body: dict[str, Any] = {"role": arguments.role, "reason": arguments.reason}
    if arguments.minutes is not None:
        body["minutes"] = arguments.minutes
    data = ask_once(remote(arguments), "POST", "/api/emergency", body)
    text = f"This client is {data['role']} until {data['ends_at']}; an alarm says so."
    return command.show(arguments, data, text)


def end(arguments: Arguments) -> int:
    """End the role before its time."""
    ask_once(remote(arguments), "DELETE", "/api/emergency")
    return command.show(arguments, {"ended": True}, "The role has ended.")


_take_arguments: Final = argument_list(
    running_arguments,
    argument("role", choices=[*map(str, Role), "administrator"], help="which role"),
    argument("--reason", required=True, metavar="TEXT", help="why; the alarm says it"),
    argument("--minutes", type=int, metavar="N",
        help="for how long (default: auth.emergency_lifetime, which is also the most)"),
)  # fmt: skip

EMERGENCY_COMMAND: Final = Command(
    "Take a role that this client was prepared for, with an alarm, or end it.",
    "domicile emergency take administrator --reason \"the only key officer is ill\"", children={
        "take": Command("Take a role for some time; it ends by itself.",
            "domicile emergency take key_officer --reason leak --minutes 30", take,
            _take_arguments),
        "end": Command("End the role before its time.", "domicile emergency end", end,
            running_arguments),
    },
)  # fmt: skip


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

APPROVAL_COMMAND: Final = Command(
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
