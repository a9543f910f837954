"""``domicile rehash``: give all records of the record-based family new tokens, and follow it."""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from proxy.cli import command, remote
from proxy.cli.command import FAULT, OK, Arguments, Command, argument, argument_list, progress
from proxy.cli.options import running_arguments
from proxy.errors import Code, VaultError

# ``domicile rehash``: starts a rehash in the instance, follows it, and fetches the result.
#
# The end of this command changes nothing: without ``--rules`` it follows the same run again.

DTK_VARIABLE: Final = "DOMICILE_DTK"

_ALL: Final = "/api/records/rehash/all"
_TOKENS: Final = "/api/records/rehash/tokens"

#: Seconds between two looks at a run, and records of one page of tokens.
_LOOK: Final = 0.5
_PAGE: Final = 500

_encode = msgspec.json.Encoder(decimal_format="number").encode


def run(arguments: Arguments) -> int:
    """Begin, follow or stop; status 1 when a record could not be rehashed."""
    if arguments.stop and (arguments.rules or arguments.forget):
        raise VaultError(Code.BAD_SETTINGS, "--stop stands alone: stop first, then start again.")
    command.refuse_existing(arguments.tokens)
    wanted = _wanted(arguments)
    with contextlib.closing(remote.remote(arguments)) as instance:
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
    instance: remote.Remote, method: str, headers: dict[str, str] | None = None, content: Any = None
) -> dict[str, Any]:
    return dict(instance.content(method, _ALL, content, headers))


def _followed(instance: remote.Remote, answer: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a run and return its last state."""
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


def _fetched(instance: remote.Remote, target: Path) -> int:
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


_arguments: Final = argument_list(
    running_arguments,
    argument("--rules", type=Path, metavar="RULES",
        help="begin: a JSON file with the rules by field; your key (dtk) stands in the variable "
        "DOMICILE_DTK"),
    argument("--forget", action="store_true", help="let old tokens be found no longer"),
    argument("--stop", action="store_true", help="stop the one under way; what it has done stays"),
    argument("--tokens", type=Path, metavar="FILE",
        help="at the end, write the newest tokens of all records as JSON Lines"),
)  # fmt: skip

COMMAND: Final = Command(
    "Give all records new tokens, online; without --rules and --forget, follow the run under way.",
    "domicile rehash --rules rules.json --tokens tokens.jsonl", run, _arguments)  # fmt: skip
