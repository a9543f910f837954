from pathlib import Path

import jsonschema
import pytest

from proxy.redactor.load.forms import Block
from proxy.redactor.load.language import RULE_FILE, blocks
from proxy.redactor.load.reference import rule_schema
from proxy.redactor.load.yaml_tree import RuleFaults, plain_values, read_tree
from tests.support.broken_rules import CASES
from tests.support.rules import marked

ROOT = Path(__file__).parents[4]
SCHEMA = rule_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = sorted([*(ROOT / "rules").rglob("*.y*ml"), *(ROOT / "docs").glob("rules.md")])


def documents(path: Path) -> list[str]:
    """The rule files in a file: itself, or the whole ones among the examples of the manual."""
    text = path.read_text("utf-8")
    if path.suffix != ".md":
        return [text]
    return [
        block.partition("```")[0]
        for block in text.split("```yaml\n")[1:]
        if block.startswith("version:")
    ]


def faults_of_schema(text: str) -> list[str]:
    faults = RuleFaults()
    tree = read_tree(text, "f", faults)
    assert tree is not None
    return [error.message for error in VALIDATOR.iter_errors(plain_values(tree))]


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_of_the_repository_fits(path):
    assert documents(path)
    for text in documents(path):
        assert faults_of_schema(text) == []


@pytest.mark.parametrize("block", list(blocks()), ids=lambda block: block.name)
def test_every_table_of_keys_is_in_it(block: Block):
    defined = SCHEMA if block is RULE_FILE else SCHEMA["$defs"][block.definition]
    assert list(defined["properties"]) == [key.name for key in block.keys]
    assert defined["required"] == [key.name for key in block.keys if key.required]
    others = block.named is not None and block.named.form.schema()
    named = defined["additionalProperties"]
    assert others == (named and {key: one for key, one in named.items() if key != "description"})


def test_it_refuses_what_a_table_alone_can_tell():
    telling = {
        "unknown key",
        "kind misspelt",
        "unknown field key",
        "unknown shape",
        "absent misspelt",
        "status of no error",
    }
    texts = {name: marked(text)[0] for name, text, _ in CASES if name in telling}
    assert set(texts) == telling
    for text in texts.values():
        assert faults_of_schema(text)
