from pathlib import Path

import jsonschema

from proxy.redactor.load import load_text, rule_keys
from proxy.redactor.load.rule_keys import RULE_FILE, blocks, rule_schema
from proxy.redactor.load.value_forms import Block, KeywordForm
from proxy.redactor.load.yaml_tree import RuleFaults, plain_values, read_tree
from proxy.redactor.rules import BodyLimits, OnError, Unmatched
from proxy.tokenization import FIELD_KINDS, PERSISTENT, SHAPES, SYNONYMS
from tests.support.broken_rules import CASES
from tests.support.rules import marked
from tests.support.table import table


def choices(block: Block, key: str) -> list[str]:
    form = next(known.form for known in block.keys if known.name == key)
    assert isinstance(form, KeywordForm)
    return list(form.choices)


def test_blocks_come_once_each_from_the_outside_in():
    names = [block.name for block in blocks()]
    assert names[0] == "rule file"
    assert len(names) == len(set(names))
    assert {
        "endpoint", "limits", "entity", "field", "token", "operation", "request", "response",
        "parameter", "on_error", "test",
    } <= set(names)  # fmt: skip


def test_words_are_those_of_the_compiled_rules():
    assert choices(rule_keys.ENDPOINT, "unmatched") == [str(word) for word in Unmatched]
    assert choices(rule_keys.FIELD_BLOCK, "kind") == list(FIELD_KINDS)


def test_keys_of_limits_and_errors_are_those_of_the_compiled_rules():
    assert [key.name for key in rule_keys.LIMITS_BLOCK.keys] == list(BodyLimits.__slots__)
    errors = {key.name for key in rule_keys.ON_ERROR.keys} - {"vault_down"}
    assert errors == {name for name in OnError.__slots__ if not name.startswith("vault_down")}


def test_stated_defaults_are_the_real_ones():
    stated = {
        key.name: key.default
        for key in (
            *rule_keys.LIMITS_BLOCK.keys,
            *rule_keys.ON_ERROR.keys,
            *rule_keys.VAULT_DOWN.keys,
        )
    }
    assert stated["body"] == f"{BodyLimits().body // 2**20}MiB"
    assert stated["inflated"] == f"{BodyLimits().inflated // 2**20}MiB"
    for name in ("json_depth", "form_fields"):
        assert stated[name] == str(getattr(BodyLimits(), name))
    for name in (
        "unreadable_body",
        "ambiguous_json",
        "too_large",
        "field_absent",
        "unknown_token",
        "untold_token",
        "upstream_not_2xx",
    ):
        assert stated[name] == str(getattr(OnError(), name))
    assert stated["write"] == str(OnError().vault_down_write)
    assert stated["read"].startswith("tokens; in pages, texts, exports and streams 503")


def test_every_shape_and_every_option_may_be_written():
    assert choices(rule_keys.TOKEN, "shape") == [*SHAPES, *SYNONYMS, *PERSISTENT]
    options = {key.name for key in rule_keys.TOKEN.keys} - {"shape", "else"}
    assert options == {option for parser in SHAPES.values() for option in parser.options}


#: Around what is printed.
BEGIN = "<!-- printed by domicile rules schema --markdown: begin -->"
END = "<!-- printed: end -->"
MANUAL = Path(__file__).parents[4] / "docs" / "rules.md"


def test_the_manual_is_in_step_with_the_code():
    _, found, rest = MANUAL.read_text("utf-8").partition(BEGIN)
    assert found
    assert rest.partition(END)[0].strip() == rule_keys.reference().strip(), (
        "put what `domicile rules schema --markdown` prints between the two marks"
    )


def test_every_key_and_every_shape_is_in_the_tables():
    text = rule_keys.reference()
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
    assert loaded == 17


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
