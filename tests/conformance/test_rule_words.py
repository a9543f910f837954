"""Every key of the rule language has a place in a file of ``rules/``, an entry in the manual, a rule
in some test beside that, and is refused where it is misused.
"""

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.load.language import RULE_FILE, blocks
from tests.support.effects import Word, every_word, plain, tree_of, words_in
from tests.support.tree import ROOT

FILES = sorted((ROOT / "rules").rglob("*.yaml"))
ENVIRON = {**os.environ, "WORDS_CLIENT": "proxy:secret"}
MANUAL = (ROOT / "docs" / "rules.md").read_text("utf-8")
TITLES = {block.definition: block.title or block.name for block in blocks()}
#: What no key may hold, but those that hold whatever JSON there is.
ABSURD: Any = ({"absurd": [["absurd"]]}, [["absurd"]])
ANY_JSON = {
    ("call", "json"),
    ("app_sees", "json"),
    ("app_answers", "json"),
    ("caller_sees", "json"),
}


class Use(NamedTuple):
    """A key in a file of ``rules/``: the way to its value."""

    file: Path
    way: tuple[str | int, ...]


@cache
def uses() -> dict[Word, Use]:
    """The first use of each key."""
    found: dict[Word, Use] = {}
    for file in FILES:
        for word, way in words_in(RULE_FILE, tree_of(file.read_text("utf-8"))):
            found.setdefault(word, Use(file, way))
    return found


@cache
def document(file: Path) -> str:
    return json.dumps(plain(tree_of(file.read_text("utf-8"))))


@cache
def rules_of_tests() -> str:
    """All texts of tests but the broken files and this one."""
    folder = ROOT / "tests"
    files = [one for one in folder.rglob("*.py") if "broken" not in one.name]
    return "\n".join(one.read_text("utf-8") for one in files if one.name != Path(__file__).name)


def test_every_key_stands_in_a_file_of_the_folder():
    assert [word for word in every_word() if word not in uses()] == []


def test_every_file_of_the_folder_loads():
    for file in FILES:
        assert load_text(document(file), file.name, ENVIRON).endpoints


@pytest.mark.parametrize("word", every_word(), ids=" ".join)
def test_every_key_is_explained_tested_and_refused_where_it_is_misused(word: Word):
    block, name = word
    entry = MANUAL.partition(f"\n### {TITLES[block]}\n")[2].partition("\n### ")[0]
    assert f"\n| `{name}`" in entry
    assert re.search(rf"\b{re.escape(name)}['\"]?\s*: ", rules_of_tests()), (
        "no rule of a test has it"
    )
    if word in ANY_JSON:
        return
    assert any(refused(uses()[word], absurd) for absurd in ABSURD)


def refused(use: Use, absurd: Any) -> bool:
    """Whether the file with that at the key is refused, at a place."""
    content = json.loads(document(use.file))
    inner = content
    for step in use.way[:-1]:
        inner = inner[step]
    inner[use.way[-1]] = absurd
    try:
        load_text(json.dumps(content), use.file.name, ENVIRON)
    except VaultError as error:
        return error.code is Code.BAD_RULES and bool(error.details)
    return False
