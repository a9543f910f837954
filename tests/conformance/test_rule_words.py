"""Every key of the rule language has a place in a file of ``rules/``, an entry in the manual, a rule
in some test beside that, and is refused where it is misused. So is every word that a key may hold.
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

from proxy.errors import Code, VaultError
from proxy.redactor import load
from proxy.redactor.load import load_text
from proxy.redactor.load.rule_keys import RULE_FILE, blocks
from proxy.redactor.load.value_forms import Block, Either, Form, KeywordForm, ListOf, MapOf
from proxy.tokenization import FIELD_KINDS, PERSISTENT, SHAPES, SYNONYMS
from tests.support.effects import Word, every_word, plain, tree_of, words_in
from tests.support.table import table
from tests.support.tree import ROOT

#: The short ones first: the first that has a word is read again and again.
FILES = sorted((ROOT / "rules").rglob("*.yaml"), key=lambda file: file.stat().st_size)
ENVIRON = {**os.environ, "WORDS_CLIENT": "proxy:secret"}
MANUAL = (ROOT / "docs" / "rules.md").read_text("utf-8")
TITLES = {block.definition: block.name for block in blocks()}
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
def keys_of_tests() -> set[str]:
    """What stands as a key in some test, but in the broken files and this one."""
    folder = ROOT / "tests"
    files = [one for one in folder.rglob("*.py") if "broken" not in one.name]
    texts = (one.read_text("utf-8") for one in files if one.name != Path(__file__).name)
    return {key for text in texts for key in re.findall(r"(\w+)['\"]?\s*: ", text)}


def test_no_table_of_keys_is_left_out():
    looked_at = list(blocks())
    modules = [import_module(f"{load.__name__}.{one.name}") for one in iter_modules(load.__path__)]
    tables = [one for module in modules for one in vars(module).values() if isinstance(one, Block)]
    assert len(tables) >= 30
    assert [one.name for one in tables if not any(one is other for other in looked_at)] == []
    assert len({one.definition for one in looked_at}) == len(looked_at)
    assert [one.name for one in looked_at if one.named and isinstance(one.named.form, Block)] == []


def test_every_key_stands_in_a_file_of_the_folder():
    assert [word for word in every_word() if word not in uses()] == []


def test_every_file_of_the_folder_loads():
    for file in FILES:
        assert load_text(document(file), file.name, ENVIRON).endpoints


@table("word", every_word())
def test_every_key_is_explained_tested_and_refused_where_it_is_misused(word: Word):
    block, name = word
    entry = MANUAL.partition(f"\n### {TITLES[block]}\n")[2].partition("\n### ")[0]
    assert f"\n| `{name}`" in entry
    assert name in keys_of_tests(), "no rule of a test has it"
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


# ------------------------------------------------------------------ words that keys hold


def keywords(form: Form) -> Iterator[str]:
    """The words of a choice, also of one in a list or beside a mapping."""
    if isinstance(form, KeywordForm):
        yield from map(str, form.choices)
    elif isinstance(form, ListOf | MapOf):
        yield from keywords(form.form)
    elif isinstance(form, Either):
        yield from keywords(form.scalar)


CHOICES = {
    (block.definition, key.name): tuple(keywords(key.form))
    for block in blocks()
    for key in block.keys
    if any(keywords(key.form))
}
#: Codes of errors: ``proxy.errors`` has them.
MANY: set[Word] = {("caller_sees", "code")}


@table("word", sorted(CHOICES))
def test_every_word_that_a_key_may_hold_is_explained_read_and_refused_if_misspelt(word: Word):
    block, name = word
    entry = MANUAL.partition(f"\n### {TITLES[block]}\n")[2].partition("\n### ")[0]
    line = next(one for one in entry.splitlines() if one.startswith(f"| `{name}`"))
    use = uses()[word]
    for choice in CHOICES[word]:
        if word not in MANY:
            listed = MANUAL if "](#token-shapes)" in line else line
            assert f"`{choice}`" in listed, f"the manual lacks {choice}"
        assert not [one for one in faults_with(use, choice) if "is not known here" in one]
        misspelt = [one for one in faults_with(use, f"{choice}x") if "is not known here" in one]
        assert misspelt, f"'{choice}x' is taken"
        assert "did you mean" in misspelt[0] or "; write " in misspelt[0]


def faults_with(use: Use, word: str) -> list[str]:
    """What is wrong with the file, where the key holds that word as its value holds one now."""
    content = json.loads(document(use.file))
    inner = content
    for step in use.way[:-1]:
        inner = inner[step]
    held = inner[use.way[-1]]
    if isinstance(held, list):
        inner[use.way[-1]] = [word]
    elif isinstance(held, dict) and not any(isinstance(one, dict) for one in held.values()):
        inner[use.way[-1]] = dict.fromkeys(held, word)
    else:
        inner[use.way[-1]] = word
    try:
        load_text(json.dumps(content), use.file.name, ENVIRON)
    except VaultError as error:
        return [one.text for one in error.details]
    return []


#: What shapes need beside their name, to have room, and what kinds of values they take.
WITH: dict[str, str] = {"template": ', template: "P-[a-z0-9]{12}"', "fixed": ", value: x"}
OF_KIND = {"email": "email", "numeric": "phone", "luhn": "card", "date": "date", "uuid": "uuid"}


@table("spelling", [*SHAPES, *SYNONYMS, *PERSISTENT])
def test_every_token_shape_is_read_by_every_name_of_it(spelling: str):
    persistent = spelling in PERSISTENT
    bare = PERSISTENT.get(spelling, spelling)
    shape = SYNONYMS.get(bare, bare)
    kind = OF_KIND.get(shape, "text")
    field = f"{{kind: {kind}, token: {{shape: {spelling}{WITH.get(shape, '')}}}}}"
    text = (
        'version: 1\nendpoint: {name: a, upstream: "http://a"}\n'
        f"entities: {{p: {{population: 1000, fields: {{f: {field}}}}}}}\n"
        'operations: [{match: "GET /p/{id}", read: p}]\n'
    )
    read = load_text(text).entities[0].fields["f"].shape
    assert read.name == shape
    assert read.same or not persistent


@table("kind", FIELD_KINDS)
def test_every_kind_has_a_shape_of_its_own(kind: str):
    text = (
        'version: 1\nendpoint: {name: a, upstream: "http://a"}\n'
        f"entities: {{p: {{fields: {{f: {{kind: {kind}}}}}}}}}\n"
        'operations: [{match: "GET /p/{id}", read: p}]\n'
    )
    field = load_text(text).entities[0].fields["f"]
    assert str(field.kind) == kind
    assert f"| `{kind}` |" in MANUAL.partition("\n### kinds\n")[2]
