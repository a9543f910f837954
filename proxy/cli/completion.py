"""``domicile completion``: the script by which a shell completes commands and options.

The script is a table of the current command line, so no process starts during typing.
"""

import argparse
from collections.abc import Iterator, Mapping
from typing import Final

from proxy.cli import SUMMARIES
from proxy.cli.command import OK, Arguments, Command, add_options, argument, option_names

_BASH: Final = """\
_domicile() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" path=domicile i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {paths}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  local words=""
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [[ -n "${{COMPREPLY[*]}}" || "$word" == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _domicile domicile
"""

_ZSH: Final = "#compdef domicile\nautoload -U +X bashcompinit && bashcompinit\n"

_FISH: Final = """\
function __domicile_path
  set -l path domicile
  for word in (commandline -opc)[2..-1]
    contains -- "$path $word" {paths}; and set path "$path $word"
  end
  test "$path" = "$argv"
end
"""


def run(arguments: Arguments) -> int:
    """Print the script of a shell."""
    from proxy.cli import commands

    table = dict(_words(commands(), "domicile"))
    print(_fish(table) if arguments.shell == "fish" else _bash(table, arguments.shell), end="")
    return OK


def _words(commands: Mapping[str, Command], path: str) -> Iterator[tuple[str, list[str]]]:
    """By path of a command, the words that may follow it."""
    yield path, [*commands, "--help"]
    for name, command in commands.items():
        if command.children:
            yield from _words(command.children, f"{path} {name}")
        else:
            parser = argparse.ArgumentParser()
            add_options(parser, command)
            yield f"{path} {name}", option_names(parser)


def _bash(table: dict[str, list[str]], shell: str) -> str:
    paths = "|".join(f"'{path}'" for path in table if " " in path)
    cases = "\n".join(
        f"    '{path}') words='{' '.join(words)}' ;;" for path, words in table.items()
    )
    return (_ZSH if shell == "zsh" else "") + _BASH.format(paths=paths, cases=cases)


def _fish(table: dict[str, list[str]]) -> str:
    lines = [_FISH.format(paths=" ".join(f"'{path}'" for path in table if " " in path))]
    for path, words in table.items():
        here = f"complete -c domicile -n '__domicile_path {path}'"
        lines += [
            f"{here} -l {word[2:]}\n" if word.startswith("--") else f"{here} -f -a {word}\n"
            for word in words
        ]
    return "".join(lines)


_arguments: Final = argument("shell", choices=["bash", "zsh", "fish"],
    help="the shell that asks")  # fmt: skip

COMMAND: Final = Command(SUMMARIES["completion"],
    "domicile completion bash", run, _arguments, data=False)  # fmt: skip
