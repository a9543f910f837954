import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from proxy import __version__
from proxy.cli import SUMMARIES, commands, main
from proxy.cli.command import (
    Arguments,
    Command,
    complain,
    execute,
    painted,
    parser,
    progress,
    rule_fault_lines,
    rule_faults,
    show,
)
from proxy.errors import Code, Detail, VaultError
from tests.support.table import table


def one(run: Callable[[Arguments], int], *, data: bool = False) -> dict[str, Command]:
    return {"one": Command(summary="Does one thing.", example="domicile one", run=run, data=data)}


def failing(error: BaseException) -> Callable[[Arguments], int]:
    def run(_arguments: Arguments) -> int:
        raise error

    return run


def leaves(
    commands: Mapping[str, Command], *path: str
) -> Iterator[tuple[tuple[str, ...], Command]]:
    for name, command in commands.items():
        if command.children:
            yield from leaves(command.children, *path, name)
        else:
            yield (*path, name), command


LEAVES = list(leaves(commands()))


@table(("path", "command"), LEAVES)
def test_the_example_of_every_command_is_understood_and_calls_it(path, command):
    program, *words = shlex.split(command.example)
    assert program == "domicile"
    assert tuple(words[: len(path)]) == path
    assert parser(commands()).parse_args(words).run is command.run


@table(("path", "command"), LEAVES)
def test_the_help_of_every_command_shows_its_summary_and_example(path, command, capsys):
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert command.example in shown
    assert "--config FILE" in shown
    assert ("--json" in shown) == command.data


@pytest.mark.parametrize(("words", "text"), [
    (["serv"], "there is no command `domicile serv`: did you mean `domicile serve`?"),
    (["keys", "rotat", "data"], "no command `domicile keys rotat`: did you mean `domicile keys rotate`?"),
    (["xyzzy"], "no command `domicile xyzzy`: see `domicile --help`"),
])  # fmt: skip
def test_a_command_that_there_is_not_is_told_with_the_nearest_one(words, text, capsys):
    assert main(words) == 2
    assert text in capsys.readouterr().err


def test_the_status_of_the_command_is_the_status_of_the_program():
    assert execute(one(lambda _arguments: 0), ["one"]) == 0
    assert execute(one(lambda _arguments: 1), ["one"]) == 1


def test_a_fault_is_named_on_standard_error_with_its_details(capsys):
    error = VaultError(Code.BAD_RULES, "Mend the rules.", (Detail("a.yaml:1:2", "write b"),))
    assert execute(one(failing(error)), ["one"]) == 1
    assert capsys.readouterr() == ("", "domicile: Mend the rules.\n  a.yaml:1:2: write b\n")


def test_a_fault_is_json_on_standard_output_where_json_was_asked_for(capsys):
    error = VaultError(Code.BAD_RULES, "Mend the rules.", (Detail("a.yaml:1:2", "write b"),))
    assert execute(one(failing(error), data=True), ["one", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "code": "bad_rules",
        "message": "Mend the rules.",
        "details": [{"source": "a.yaml:1:2", "text": "write b"}],
    }


@pytest.mark.parametrize(
    "words", [["two"], ["one", "more"], ["one", "--conf", "x"], ["one", "--json"], ["--nothing"]]
)
def test_wrong_usage_is_status_2_and_shows_the_usage(words, capsys):
    assert execute(one(lambda _arguments: 0), words) == 2
    assert "usage: domicile" in capsys.readouterr().err


def test_an_argument_that_a_command_does_not_know_is_told_with_the_usage_of_that_command(capsys):
    assert main(["rules", "check", "--confg", "x"]) == 2
    told = capsys.readouterr().err
    assert "usage: domicile rules check" in told
    assert "unrecognized arguments: --confg" in told


def test_no_command_at_all_shows_the_commands_and_is_wrong_usage(capsys):
    assert execute(one(lambda _arguments: 0), []) == 2
    assert "Does one thing." in capsys.readouterr().err


def test_a_group_without_its_subcommand_shows_them_and_is_wrong_usage(capsys):
    group = {
        "group": Command("Holds one.", "domicile group one", children=one(lambda _arguments: 0))
    }
    assert execute(group, ["group"]) == 2
    assert "Does one thing." in capsys.readouterr().err
    assert execute(group, ["group", "one"]) == 0


def test_the_list_of_commands_says_what_each_says_of_itself(capsys):
    assert {name: command.summary for name, command in commands().items()} == SUMMARIES
    assert main([]) == 2
    assert {*SUMMARIES} <= {*capsys.readouterr().err.split()}


@table("words", [["--version"], ["--help"], [], ["xyzzy"], ["-x"]])
def test_what_runs_no_command_loads_none(words):
    code = f"import sys, proxy.cli; proxy.cli.main({words}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("proxy.")}
    assert loaded - {"proxy.functions"} == {"proxy.cli", "proxy.cli.command", "proxy.errors"}


def test_a_command_behind_a_wrong_option_is_asked_what_it_knows(capsys):
    assert main(["-x", "serve"]) == 2
    assert "usage: domicile serve" in (told := capsys.readouterr().err)
    assert "--upstream" in told


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"domicile {__version__}\n"


def test_ctrl_c_ends_quietly(capsys):
    assert execute(one(failing(KeyboardInterrupt())), ["one"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_went_away_is_no_traceback(capfd):
    kept = os.dup(1)
    try:
        assert execute(one(failing(BrokenPipeError())), ["one"]) == 1
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert capfd.readouterr().err == ""


def test_what_is_no_fault_of_the_operator_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        execute(one(failing(ZeroDivisionError())), ["one"])


def test_a_result_is_text_or_one_line_of_json(capsys):
    for as_json, text in ((False, "for people"), (False, ["two", "lines"]), (True, "for people")):
        assert show(Arguments(json=as_json), {"name": "Åsa"}, text) == 0
    assert capsys.readouterr().out == 'for people\ntwo\nlines\n{"name": "Åsa"}\n'


def test_a_terminal_sees_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = progress("import", 10, "records", done=2)
    bar.update(3)
    bar.close()
    assert "5/10" in capsys.readouterr().err


def test_a_pipe_sees_nothing(capsys):
    bar = progress("import", 10, "records")
    bar.update(10)
    bar.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("words", "text"), [
    (["serve", "--upstrem", "http://x"], "did you mean --upstream?"),
    (["serve", "--contry=se"], "did you mean --country?"),
    (["--config", "a.yaml", "check"], "--config belongs behind a command: `domicile COMMAND --config …`"),
    (["--config=a.yaml", "check"], "`domicile COMMAND --config …`"),
    (["--json", "coverage"], "`domicile COMMAND --json …`"),
    (["client", "create", "--enviroment", "a", "b", "--environment", "c"], "did you mean --environment?"),
    (["health", "--quibble"], "unrecognized arguments: --quibble\n"),
])  # fmt: skip
def test_an_option_that_is_misspelt_is_answered_with_the_nearest_one(words, text, capsys):
    assert main(words) == 2
    assert text in capsys.readouterr().err


RULE_FAULT = VaultError(
    Code.BAD_RULES, "The rules have one fault.", (Detail("rules.yaml:2:7", "unknown key"),)
)


def test_a_fault_of_a_rule_file_is_shown_at_its_place(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text("version: 1\n  abc\tdef: x\n")
    assert execute(one(failing(RULE_FAULT)), ["one"]) == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  rules.yaml:2:7: unknown key",
        "        abc def: x",
        "            ^",
    ]
    (tmp_path / "rules.yaml").write_text("version: 1\n")
    assert execute(one(failing(RULE_FAULT)), ["one"]) == 1
    assert capsys.readouterr().err.splitlines()[1:] == ["  rules.yaml:2:7: unknown key"]


def test_a_sentence_that_counts_at_several_places_of_the_rules_stands_once():
    details = (
        Detail("a.yaml:1:2", "too small"),
        Detail("a.yaml:3:4", "odd"),
        Detail("b.yaml:5:6", "too small"),
    )
    assert rule_faults(details) == [
        "  a.yaml:1:2: too small",
        "      the same at b.yaml:5:6",
        "  a.yaml:3:4: odd",
    ]


def test_a_long_line_is_shown_around_its_fault(tmp_path):
    (tmp_path / "rules.yaml").write_text("x" * 500 + "y" + "z" * 500)
    _, shown, caret = rule_fault_lines(Detail(f"{tmp_path}/rules.yaml:1:501", "unknown"))
    assert len(shown) < 100
    assert shown[caret.index("^")] == "y"


def test_a_line_of_the_settings_is_never_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "domicile.yaml").write_text("store: secret\n")
    fault = VaultError(Code.BAD_SETTINGS, "One fault.", (Detail("domicile.yaml:1:8", "no store"),))
    assert execute(one(failing(fault)), ["one"]) == 1
    assert "secret" not in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "variables", "colored"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colors_are_for_terminals_that_want_them(stream, variables, colored, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert (painted("x", "31", stream) == "x") is not colored


def test_a_terminal_obeys_no_name_of_others_and_json_stays_what_it_is(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    hostile = "a\x1b]0;b\x07\x1b[2J\x9b31m\x7f\u202egnp\u2066\rx\x00\x1b[32min order\x1b[0m"
    monkeypatch.setenv("TERM", "xterm")
    ours = painted("ours", "31;1", Terminal())
    data = {hostile: [hostile, "å\t\n😀"]}
    for as_json in (True, False):
        arguments = Arguments(json=as_json)
        show(arguments, data, [hostile, "å\t\n😀", ours])
        complain(VaultError(Code.BAD_RULES, hostile, (Detail(hostile, hostile),)), as_json=as_json)
        said, complained = capsys.readouterr()
        if as_json:
            first, second = said.splitlines()
            assert json.loads(first) == data
            assert json.loads(second)["message"] == hostile
        assert as_json or "\x1b[31;1mours\x1b[0m" in said
        own = said.replace("\x1b[31;1mours\x1b[0m", "") + complained
        assert [sign for sign in own if not (sign.isprintable() or sign in "\n\t")] == []
        assert "å" in said
        assert "\\u009b" in own
