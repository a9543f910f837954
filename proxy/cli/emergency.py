"""``domicile emergency``: a client takes a role that it was prepared for, or ends it.

The client is the one of ``DOMICILE_CLIENT_ID`` itself.
"""

from typing import Any, Final

from proxy.cli import command
from proxy.cli.backend import running_arguments
from proxy.cli.command import Arguments, Command, argument, argument_list
from proxy.cli.remote import ask_once, remote
from proxy.model.record import Role


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

COMMAND: Final = Command("Take a role that this client was prepared for, with an alarm, or end it.",
    "domicile emergency take administrator --reason \"the only key officer is ill\"", children={
        "take": Command("Take a role for some time; it ends by itself.",
            "domicile emergency take key_officer --reason leak --minutes 30", take,
            _take_arguments),
        "end": Command("End the role before its time.", "domicile emergency end", end,
            running_arguments),
    },
)  # fmt: skip
