from pathlib import Path

import jsonschema
import pytest

from proxy.redactor.load import load_text, reference
from proxy.redactor.load.reference import rule_schema
from proxy.redactor.load.rule_keys import RULE_FILE, blocks
from proxy.redactor.load.value_forms import Block
from proxy.redactor.load.yaml_tree import RuleFaults, plain_values, read_tree
from proxy.tokenization import SHAPES
from tests.support.broken_rules import CASES
from tests.support.rules import marked
from tests.support.table import table

MANUAL = Path(__file__).parents[4] / "docs" / "rules.md"


def test_the_manual_is_in_step_with_the_code():
    text = MANUAL.read_text("utf-8")
    assert reference.renew_manual(text) == text, (
        "run: python -m proxy.redactor.load.reference docs/rules.md"
    )


def test_every_key_and_every_shape_is_in_the_tables():
    text = reference.reference()
    for block in blocks():
        for key in block.keys:
            assert f"| `{key.name}`" in text
    for shape in SHAPES:
        assert f"| `{shape}` |" in text


def test_the_smallest_file_of_the_manual_loads():
    text = MANUAL.read_text("utf-8")
    whole = [
        block.partition("```")[0]
        for block in text.split("```yaml\n")[1:]
        if block.startswith("version:")
    ]
    assert len(whole) == 1
    assert len(load_text(whole[0]).operations) == 5


def test_the_parts_of_the_manual_load_inside_a_file():
    text = MANUAL.read_text("utf-8")
    parts = [block.partition("```")[0] for block in text.split("```yaml\n")[1:]]
    entities = next(part for part in parts if part.startswith("entities:")).partition(
        "operations:"
    )[0]
    head = (
        "version: 1\nendpoint: {name: crm, upstream: "
        f'"http://a"}}\n{entities.replace("    fields:", "    fields:" + chr(10) + "      phone: {kind: phone}")}'
    )
    head += "  courier: {fields: {name: {kind: name}}}\n"
    loaded = 0
    for part in parts:
        operations = part.partition("operations:\n")[2] if part.startswith("entities:") else part
        if operations.lstrip().startswith("- match"):
            assert load_text(f"{head}operations:\n{operations}").operations
            loaded += 1
        elif part.startswith("tests:"):
            assert load_text(head + part).tests
            loaded += 1
    assert loaded == 14


def test_a_manual_without_place_for_the_tables_is_refused():
    with pytest.raises(ValueError, match="no place"):
        reference.renew_manual("# Rules\n")


def test_running_it_writes_the_file(tmp_path, monkeypatch):
    path = tmp_path / "manual.md"
    path.write_text(f"before\n{reference.BEGIN_MARK}\noutdated\n{reference.END}\nafter\n")
    monkeypatch.setattr("sys.argv", ["reference", str(path)])
    reference.write_manuals()
    text = path.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{reference.END}\nafter\n")
    assert "outdated" not in text
    assert "### token shapes" in text


# ---- jsonschema


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


@table("path", EXAMPLES)
def test_every_example_of_the_repository_fits(path):
    assert documents(path)
    for text in documents(path):
        assert faults_of_schema(text) == []


@table("block", list(blocks()))
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
