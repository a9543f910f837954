"""Subcommands, and the dispatch from the command line to them.

A file of this room exports ``COMMAND``; this file builds the argparse tree from the registry, gives
every subcommand ``--help`` with an example and ``--config``, and turns a ``VaultError`` into its
text and exit status 1.
"""

import argparse
import contextlib
import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TextIO, TypeVar, cast

from proxy import __version__
from proxy.errors import Code, Detail, VaultError

_Parsed = TypeVar("_Parsed")

# How commands print: results on standard output, faults on standard error, both as text or JSON.


def show(arguments: "Arguments", data: Any, text: str | Iterable[str]) -> int:
    """Print a result: text or lines for people, ``data`` in a line with ``--json``. Answers OK."""
    if arguments.json:
        print(_json(data))
    else:
        print(printable(text if isinstance(text, str) else "\n".join(text)))
    return OK


def printable(text: str) -> str:
    """The text with escapes in place of signs that a terminal would obey: names and texts of others
    stand in it. Line ends, tabs and the colours of ``painted`` stay.
    """
    return _STEERING.sub(_escaped, text).replace(_PAINT, "\x1b[")


def _json(data: Any) -> str:
    """Data in one line, likewise: what is escaped stands within texts."""
    return printable(json.dumps(data, ensure_ascii=False))


#: Beginning of a colour of ours until it is printed: no name of others can have it.
_PAINT: Final = f"\x1b{os.urandom(8).hex()}["
#: Controls but for tabs, line ends and ``painted``, and signs that turn the direction of a text.
_STEERING: Final = re.compile(
    f"(?!{re.escape(_PAINT)})"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def _escaped(sign: re.Match[str]) -> str:
    return f"\\u{ord(sign[0]):04x}"


def count_noun(count: int, what: str) -> str:
    """``1 line``, ``2 lines``: a number and the regular noun that it counts."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def complain(error: VaultError, *, as_json: bool) -> None:
    """Print a fault: its message and details as lines, or ``{code, message, details}`` as JSON."""
    if as_json:
        print(_json(fault(error)))
    else:
        lines_of = rule_faults if error.code is Code.BAD_RULES else detail_lines
        lines = lines_of(error.details)
        head = painted("domicile:", _RED, sys.stderr)
        print(printable("\n".join([f"{head} {error.message}", *lines])), file=sys.stderr)


def fault(error: VaultError) -> dict[str, Any]:
    """A fault as JSON tells it."""
    details = [{"source": detail.source, "text": detail.text} for detail in error.details]
    return {"code": str(error.code), "message": error.message, "details": details}


def detail_lines(details: Sequence[Detail]) -> list[str]:
    """Return an indented line per detail: where, and what to do."""
    return [f"  {detail.source}: {detail.text}" for detail in details]


_RED, _GREEN = "31;1", "32"


def painted(text: str, color: str, stream: TextIO) -> str:
    """The text in a colour where ``stream`` is a terminal, unless NO_COLOR or TERM forbid it; for
    ``printable``.
    """
    bare = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if bare else f"{_PAINT}{color}m{text}{_PAINT}0m"


def in_order(text: str) -> str:
    """A part of a report that is well, for standard output."""
    return painted(text, _GREEN, sys.stdout)


def painted_fault(text: str) -> str:
    """A part of a report that is not."""
    return painted(text, _RED, sys.stdout)


def rule_faults(details: Sequence[Detail]) -> list[str]:
    """The lines of faults in rule files; a sentence that counts at several places stands once."""
    places: dict[str, list[str]] = {}
    for detail in details:
        places.setdefault(detail.text, []).append(detail.source)
    lines = list[str]()
    for text, (first, *more) in places.items():
        also = [f"      the same at {', '.join(more)}"] if more else []
        lines += [*rule_fault_lines(Detail(first, text)), *also]
    return lines


def rule_fault_lines(detail: Detail) -> list[str]:
    """The line of a fault in a rule file, with the place in the file and a caret under it.

    For rule files alone: settings may hold secrets.
    """
    lines = detail_lines([detail])
    position = _POSITION.fullmatch(detail.source)
    if position is None:
        return lines
    try:
        written = Path(position[1]).read_text("utf-8").splitlines()[int(position[2]) - 1]
    except (OSError, UnicodeDecodeError, IndexError):
        return lines
    column = int(position[3]) - 1
    start = max(0, column - _BEFORE)
    excerpt = written[start : start + _WIDTH].replace("\t", " ")
    return [*lines, f"      {excerpt}", f"      {' ' * (column - start)}^"]


#: ``file:line:column``.
_POSITION: Final = re.compile(r"(.+):(\d+):(\d+)", re.DOTALL)

#: Of a long line, the characters before the fault that are shown, and all that are.
_BEFORE, _WIDTH = 40, 90

OK: Final = 0
FAULT: Final = 1  #: a fault that the command names
USAGE: Final = 2  #: wrong usage, as argparse has it
INTERRUPTED: Final = 130  #: Ctrl-C, as shells have it

Arguments = argparse.Namespace

#: Adds arguments to the parser of a command.
AddArguments = Callable[[argparse.ArgumentParser], None]


def argument(*names: str, **more: Any) -> AddArguments:
    """Return what adds one argument; parameters as of ``ArgumentParser.add_argument``."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(*names, **more)

    return add


def argument_list(*parts: AddArguments) -> AddArguments:
    """Return what adds these one after the other."""

    def add(parser: argparse.ArgumentParser) -> None:
        for part in parts:
            part(parser)

    return add


_NO_ARGUMENTS: Final = argument_list()


def parsed_by(parse: Callable[[str], _Parsed], hint: str = "") -> Callable[[str], _Parsed]:
    """Return the type of an argument that ``parse`` reads: its ``ValueError`` is wrong usage."""

    def read(text: str) -> _Parsed:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}{hint}") from None

    return read


def number_option(least: int, most: float, hint: str) -> Callable[[str], int]:
    """Return the type of an argument that is a number of this range; ``hint`` tells of others."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(hint)
        return int(text)

    return read


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand (with ``run``) or a group of them (with ``children``)."""

    summary: str  #: one line for the list of commands, a sentence
    example: str  #: a whole command line that works
    run: Callable[[Arguments], int] | None = None  #: does it and answers the exit status
    arguments: AddArguments = _NO_ARGUMENTS  #: its own
    data: bool = True  #: prints data, and so takes ``--json``
    children: Mapping[str, "Command"] = field(default_factory=dict)


def parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The whole argparse tree of these commands."""
    top = argparse.ArgumentParser(
        prog="domicile",
        description="A data-residency proxy with an embedded vault.",
        epilog="Start with: domicile demo" if "demo" in commands else None,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"domicile {__version__}")
    _grow(top, commands)
    return top


def execute(commands: Mapping[str, Command], argv: Sequence[str] | None) -> int:
    """Parse and run. Never raises for faults that an operator can cause."""
    try:
        top, words = parser(commands), sys.argv[1:] if argv is None else argv
        if fault := _misplaced(words) or _misspelt(commands, words):
            top.error(fault)
        arguments, unknown = top.parse_known_args(words)
        if unknown:  # told by the command that they were meant for, whose usage names what there is
            arguments.parser.error(_unrecognized(arguments.parser, unknown))
    except SystemExit as stop:  # argparse has printed its help or the usage already
        return stop.code if isinstance(stop.code, int) else USAGE
    run: Callable[[Arguments], int] | None = arguments.run
    if run is None:
        arguments.parser.print_help(sys.stderr)
        return USAGE
    from proxy.functions.sandbox import shield

    shield()  # before any key is read
    try:
        prepare: Callable[[Arguments], None] | None = getattr(arguments, "prepare", None)
        if prepare is not None:
            prepare(arguments)
        status = run(arguments)
        sys.stdout.flush()
        return status
    except VaultError as error:
        complain(error, as_json=getattr(arguments, "json", False))
        return FAULT
    except BrokenPipeError:  # the reader of a pipe went away; nothing is left to tell it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except KeyboardInterrupt:
        return INTERRUPTED


def _misplaced(words: Sequence[str]) -> str:
    """Describe an option that stands before the command it belongs to."""
    option = words[0].partition("=")[0] if words else ""
    if not option.startswith("--") or option in ("--help", "--version"):
        return ""
    return f"{option} belongs behind a command: `domicile COMMAND {option} …`"


def _misspelt(commands: Mapping[str, Command], words: Sequence[str]) -> str:
    """Describe the first word that should be a command and is none."""
    path = "domicile"
    for word in words:
        if word.startswith("-") or not commands:
            break
        if word not in commands:
            near = difflib.get_close_matches(word, commands, n=1)
            hint = f"did you mean `{path} {near[0]}`?" if near else f"see `{path} --help`"
            return f"there is no command `{path} {word}`: {hint}"
        path, commands = f"{path} {word}", commands[word].children
    return ""


def _unrecognized(branch: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Describe unknown arguments of a command, with the nearest options."""
    options = option_names(branch)
    near = [
        match
        for word in unknown
        for match in difflib.get_close_matches(word.partition("=")[0], options, n=1)
    ]
    hint = f": did you mean {' and '.join(near)}?" if near else ""
    return f"unrecognized arguments: {' '.join(unknown)}{hint}"


def _grow(parent: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    parent.set_defaults(run=None, parser=parent)
    branches = parent.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in commands.items():
        branch = branches.add_parser(
            name,
            help=command.summary,
            description=command.summary,
            epilog=f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.children:
            _grow(branch, command.children)
            continue
        branch.set_defaults(run=command.run, parser=branch)
        add_options(branch, command)


def add_options(branch: argparse.ArgumentParser, command: Command) -> None:
    """Add the options of one command to its parser: the common ones, then its own."""
    branch.add_argument(
        "--config", metavar="FILE", type=Path, help="settings file (default: domicile.yaml here)"
    )
    if command.data:
        branch.add_argument("--json", action="store_true", help="print JSON")
    command.arguments(branch)


def option_names(branch: argparse.ArgumentParser) -> list[str]:
    """The options that a parser knows."""
    return [*re.findall(r"--[a-z][a-z-]*", branch.format_usage()), "--help"]


def refuse_existing(target: Path | None) -> None:
    """Raise ``VaultError(BAD_SETTINGS)`` where the file that is to be made is there."""
    if target is not None and target.exists():
        raise VaultError(
            Code.BAD_SETTINGS, f"{target} is there already: name another file, or remove it."
        )


def write_file(target: Path, pieces: Iterable[bytes]) -> None:
    """Make a file that only its owner reads, durably: complete, or not there.

    Raises ``VaultError(NOT_WRITABLE)``.
    """
    making = target.with_name(target.name + ".part")
    try:
        with contextlib.suppress(FileNotFoundError):
            making.unlink()
        with os.fdopen(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        making.replace(target)
    except OSError as error:
        raise VaultError(
            Code.NOT_WRITABLE, f"{target} cannot be written ({error.strerror})."
        ) from None
    finally:
        with contextlib.suppress(OSError):
            making.unlink()


# Progress of long work: a bar on a terminal, nothing where standard error is none (a job, a pipe).


#: Seconds between two lines that tell the progress to a log.
_LINE: Final = 60.0


class Progress(Protocol):
    """Progress of a piece of work; always close it at the end."""

    def update(self, n: float = 1) -> bool | None:
        """So many more are done."""

    def close(self) -> None:
        """Leave the bar as it stands."""


def progress(title: str, total: int | None, unit: str, done: int = 0) -> Progress:
    """A bar for ``total`` units (``None``: unknown), of which ``done`` are complete; where nobody
    watches a terminal, a line every minute.
    """
    # some 15 ms that `domicile health`, which probes call every few seconds, need not spend
    from tqdm import tqdm

    watched = sys.stderr.isatty()
    pause = 0.1 if watched else _LINE
    bar = tqdm(
        desc=title,
        total=total,
        unit=f" {unit}",
        initial=done,
        dynamic_ncols=watched,
        mininterval=pause,
        maxinterval=max(pause, 10.0),
        delay=0.0 if watched else _LINE,
        bar_format=None if watched else "{desc}: {n_fmt}{unit} in {elapsed}\n",
    )
    return cast("Progress", bar)
