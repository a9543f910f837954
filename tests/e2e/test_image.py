"""The container image and the wheel in it, as far as they can be judged without a container engine."""

import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import pytest

from proxy import __version__
from proxy.cli import commands
from proxy.cli.command import parser
from proxy.config import load_settings
from proxy.config.document import VARIABLE_PREFIX
from tests.support.tree import ROOT, tracked
from tests.support.unavailable import Unavailable

TEXT = (ROOT / "Dockerfile").read_text("utf-8")
#: One instruction a line; comments gone.
LINES = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines()


def instructions(name: str) -> list[str]:
    return [line.partition(" ")[2].strip() for line in LINES if line.startswith(f"{name} ")]


def ignored(path: str) -> bool:
    """Whether .dockerignore leaves a path of the project's outermost folder out."""
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    return f"!{path}" not in lines


def test_everything_copied_is_in_the_project_and_not_ignored():
    sources = [
        word
        for line in instructions("COPY")
        if not line.startswith("--from")
        for word in shlex.split(line)[:-1]
    ]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if ignored(source.split("/")[0])] == []


def test_the_container_does_not_run_as_root_and_says_so_in_numbers():
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instructions("USER")[-1])
    assert LINES.index(f"USER {instructions('USER')[-1]}") > max(
        number for number, line in enumerate(LINES) if line.startswith(("RUN ", "COPY "))
    ), "nothing is written after the user is set"


def test_only_locked_versions_are_installed():
    installs = re.findall(r"pip[^&]* install [^&]*", " ".join(instructions("RUN")))
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


def test_the_settings_of_the_image_are_settings_and_fit_together():
    pairs = dict(re.findall(rf"({VARIABLE_PREFIX}\w+)=(\S+)", " ".join(instructions("ENV"))))
    settings = load_settings(None, pairs)
    assert str(settings.data) == instructions("VOLUME")[0]
    assert set(pairs) == {"DOMICILE__DATA", "DOMICILE__RULES"}, "the rest is the operator's to say"
    assert settings.listen == load_settings(None, {}).listen
    assert instructions("EXPOSE") == [f"{settings.listen.proxy.port} {settings.listen.vault.port}"]


@pytest.mark.parametrize("words", [["health"]])
def test_the_health_check_is_a_command_of_the_program(words):
    (check,) = instructions("HEALTHCHECK")
    command = re.findall(r'"([^"]+)"', check.partition("CMD")[2])
    assert command == ["domicile", *words]
    assert parser(commands()).parse_args(command[1:]).run is commands()["health"].run


def test_no_layer_holds_a_secret():
    assert not re.search(r"(password|token|secret|key)\s*=", TEXT, re.IGNORECASE)
    assert not instructions("ARG")


def test_the_wheel_holds_the_program_and_nothing_else(tmp_path):
    source = tmp_path / "source"
    for path in tracked():
        if path.relative_to(ROOT).parts[0] in {
            "proxy",
            "rules",
            "pyproject.toml",
            "README.md",
            "LICENSE",
        }:
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=source,
        check=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.split("/")[0] for name in names}
    assert folders == {"proxy", f"domicile-{__version__}.dist-info"}
    packed = {name for name in names if name.startswith("proxy/")}
    packed.remove("proxy/demo/contacts.yaml")
    assert packed == {
        path.relative_to(source).as_posix()
        for path in (source / "proxy").rglob("*")
        if path.is_file()
    }
    entry = (
        zipfile.ZipFile(wheel).read(f"domicile-{__version__}.dist-info/entry_points.txt").decode()
    )
    assert "domicile = proxy.cli:main" in entry


def test_the_image_builds(unavailable: Unavailable):
    engine = shutil.which("docker")
    if (
        engine is None
        or subprocess.run([engine, "info"], capture_output=True, check=False).returncode != 0
    ):
        unavailable("building and running the container image", "no container engine answers")
    subprocess.run([engine, "build", "-t", "domicile:test", ROOT], check=True, timeout=600)
    run = [
        engine, "run", "--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",
        "domicile:test", "--version",
    ]  # fmt: skip
    shown = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == f"domicile {__version__}\n"
