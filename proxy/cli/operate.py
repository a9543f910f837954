"""To a running instance: ``token``, ``reload``, ``emergency``, ``approval`` and ``rehash``."""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from proxy.cli import SUMMARIES, command
from proxy.cli.command import (
    FAULT,
    OK,
    AddArguments,
    Arguments,
    Command,
    argument,
    argument_list,
    progress,
)
from proxy.cli.options import optional_url, running_arguments
from proxy.cli.remote import Remote, administered, ask_once, remote
from proxy.errors import Code, VaultError
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

TOKEN_COMMAND: Final = Command(SUMMARIES["token"],
    "domicile token --url https://se-vault.example.com", print_token, _token_arguments)  # fmt: skip


def reload(arguments: Arguments) -> int:
    """Exit status 0 if everything that was read is active."""
    data = ask_once(remote(arguments), "POST", "/api/reload")
    lines = [f"{what}: {state}" for what, state in data["checks"].items()]
    command.show(arguments, data, lines)
    return OK if all(state == "ok" for state in data["checks"].values()) else FAULT


RELOAD_COMMAND: Final = Command(
    SUMMARIES["reload"],
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
    SUMMARIES["emergency"],
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


def decide(arguments: Arguments) -> int:
    """Approve a request, which who asked sends again then, or refuse it."""
    path = f"/api/approvals/{arguments.approval}"
    data = ask_once(remote(arguments), "POST", path, {"decision": arguments.decision})
    return command.show(arguments, data, _line(data))


def _line(one: Any) -> str:
    request = json.dumps(one["request"], ensure_ascii=False, default=str)
    return (
        f"{one['approval_id']}  {one['state']:<8}  until {one['ends_at']}  by {one['client_id']}  "
        f"{one['operation']} {request}"
    )


def _decide_arguments(decision: str) -> AddArguments:
    return argument_list(
        running_arguments,
        argument("approval", metavar="ID", help="as `domicile approval list` shows it"),
        lambda parser: parser.set_defaults(decision=decision),
    )


APPROVAL_COMMAND: Final = Command(
    SUMMARIES["approval"],
    "domicile approval list --url https://vault.example.com", children={
        "list": Command("List the requests that wait: one's own, and those one may decide.",
            "domicile approval list --json", list_approvals_command, running_arguments),
        "approve": Command("Approve another client's request, which it then sends again.",
            "domicile approval approve k7m2p9xwq4ht6vbd", decide,
            _decide_arguments("approve")),
        "refuse": Command("Refuse another client's request.",
            "domicile approval refuse k7m2p9xwq4ht6vbd", decide,
            _decide_arguments("refuse")),
    },
)  # fmt: skip


# ``domicile rehash``: starts a rehash in the instance, follows it, and fetches the result.
#
# The end of this command changes nothing: without ``--rules`` it follows the rehash again.

DTK_VARIABLE: Final = "DOMICILE_DTK"

_ALL: Final = "/api/records/rehash/all"
_TOKENS: Final = "/api/records/rehash/tokens"

#: Seconds between two looks at a rehash, and records of one page of tokens.
_LOOK: Final = 0.5
_PAGE: Final = 500

_encode = msgspec.json.Encoder(decimal_format="number").encode


def rehash_command(arguments: Arguments) -> int:
    """Begin, follow or stop; status 1 when a record could not be rehashed."""
    if arguments.stop and (arguments.rules or arguments.forget):
        raise VaultError(Code.BAD_SETTINGS, "--stop stands alone: stop first, then start again.")
    command.refuse_existing(arguments.tokens)
    wanted = _wanted(arguments)
    with contextlib.closing(remote(arguments)) as instance:
        if arguments.stop:
            answer = _content(instance, "DELETE", {"Idempotency-Key": f"rehash-{uuid.uuid4()}"})
        elif wanted is not None:
            answer = _content(
                instance, "POST", {"Idempotency-Key": f"rehash-{uuid.uuid4()}"}, wanted
            )
        else:
            answer = _content(instance, "GET")
        answer = _followed(instance, answer)
        count = None if arguments.tokens is None else _fetched(instance, arguments.tokens)
    command.show(arguments, {**answer, "tokens": count}, _text(answer, arguments, count))
    return FAULT if answer.get("failed") or answer.get("unreadable") else OK


def _wanted(arguments: Arguments) -> dict[str, Any] | None:
    """Return the request that the command line describes; ``None`` if it starts nothing."""
    if arguments.rules is None:
        return {"forget": True} if arguments.forget else None
    dtk = os.environ.get(DTK_VARIABLE, "")
    if not dtk:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"Your key is missing: set {DTK_VARIABLE} in the environment to its 96 letters and "
            "digits.",
        )
    try:
        rules = msgspec.json.decode(arguments.rules.read_bytes())
    except OSError as error:
        raise VaultError(
            Code.BAD_SETTINGS, f"{arguments.rules} cannot be read ({error.strerror})."
        ) from None
    except msgspec.MsgspecError:
        raise VaultError(Code.BAD_SETTINGS, f"{arguments.rules} is not JSON.") from None
    return {"dtk": dtk, "rules": rules, "forget": arguments.forget}


def _content(
    instance: Remote, method: str, headers: dict[str, str] | None = None, content: Any = None
) -> dict[str, Any]:
    return dict(instance.content(method, _ALL, content, headers))


def _followed(instance: Remote, answer: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a rehash and return its last state."""
    if answer["state"] != "running":
        return answer
    bar, counted = None, 0
    try:
        while answer["state"] == "running":
            time.sleep(_LOOK)
            answer = _content(instance, "GET")
            if bar is None and answer.get("total"):
                bar = progress("rehash", answer["total"], "records")
            if bar is not None:
                bar.update(answer["done"] - counted)
                counted = answer["done"]
    finally:
        if bar is not None:
            bar.close()
    return answer


def _fetched(instance: Remote, target: Path) -> int:
    """Write the tokens of all records; of how many."""
    count = 0

    def lines() -> Iterator[bytes]:
        nonlocal count
        for page in instance.pages(f"{_TOKENS}?limit={_PAGE}"):
            for record in page["data"]:
                count += 1
                yield _encode(record) + b"\n"

    command.write_file(target, lines())
    return count


def _text(answer: dict[str, Any], arguments: Arguments, count: int | None) -> str:
    if answer["state"] == "none":
        lines = ["There was no rehash of all records yet: begin one with --rules."]
    else:
        counts = (
            f"{answer['done']} of {answer['total']} records, {answer['failed']} with a value that "
            "its strategy does not take"
        )
        lines = [
            f"The rehash is {answer['state']}: {counts}, {answer['unreadable']} that do not open."
        ]
    if arguments.forget and answer["state"] == "done":
        lines.append("Old tokens, in whose place there are newer ones, are found no longer.")
    if arguments.tokens is not None:
        lines.append(f"The tokens of {count} records are in {arguments.tokens}.")
    return "\n".join(lines)


_rehash_arguments: Final = argument_list(
    running_arguments,
    argument("--rules", type=Path, metavar="RULES",
        help="begin: a JSON file with the rules by field; your key (dtk) stands in the variable "
        "DOMICILE_DTK"),
    argument("--forget", action="store_true", help="let old tokens be found no longer"),
    argument("--stop", action="store_true", help="stop the one under way; what it has done stays"),
    argument("--tokens", type=Path, metavar="FILE",
        help="at the end, write the newest tokens of all records as JSON Lines"),
)  # fmt: skip

REHASH_COMMAND: Final = Command(
    SUMMARIES["rehash"], "domicile rehash --rules rules.json --tokens tokens.jsonl", rehash_command,
    _rehash_arguments)  # fmt: skip
