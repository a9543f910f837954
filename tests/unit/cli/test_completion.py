import re
import subprocess

import pytest

from proxy.cli import COMMANDS, main
from tests.support.patience import PATIENCE


@pytest.fixture
def script(capsys):
    def script(shell: str) -> str:
        assert main(["completion", shell]) == 0
        return str(capsys.readouterr().out)

    return script


@pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("domicile ", {"serve", "client", "completion", "--help"}, {"create"}),
        ("domicile cl", {"client"}, {"serve"}),
        ("domicile client ", {"create", "list", "disable"}, {"serve"}),
        ("domicile client create --e", {"--environment", "--external", "--emergency"}, {"--url"}),
        ("domicile serve --up", {"--upstream"}, {"--rules"}),
        ("domicile keys rotate --", {"--config", "--json"}, {"--upstream"}),
    ],
)
def test_bash_completes_commands_and_options(script, tmp_path, line, some, none):
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _domicile; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "-c", script("bash") + ask],
        capture_output=True, text=True, check=True, timeout=PATIENCE, cwd=tmp_path,
    )  # fmt: skip
    told = set(done.stdout.split())
    assert some <= told
    assert not none & told


def test_bash_completes_files_where_nothing_else_fits(script, tmp_path):
    (tmp_path / "desk.yaml").touch()
    ask = (
        "COMP_WORDS=(domicile policy apply de); COMP_CWORD=3; _domicile; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "-c", script("bash") + ask],
        capture_output=True, text=True, check=True, timeout=PATIENCE, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == "desk.yaml\n"


def test_the_script_of_zsh_is_that_of_bash_with_its_head(script):
    bash, zsh = script("bash"), script("zsh")
    assert zsh.startswith("#compdef domicile\n")
    assert "bashcompinit" in zsh
    assert zsh.endswith(bash)


def test_fish_knows_every_command_and_its_options(script):
    text = script("fish")
    for name in COMMANDS:
        assert f"complete -c domicile -n '__domicile_path domicile' -f -a {name}\n" in text
    create = re.findall(r"-n '__domicile_path domicile client create' -l (\S+)\n", text)
    assert {"environment", "admin", "url", "json", "help"} <= set(create)
    assert text.count("function ") == text.count("\nend\n") == 1


def test_another_shell_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
