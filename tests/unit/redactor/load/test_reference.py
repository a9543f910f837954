from pathlib import Path

import pytest

from proxy.redactor.load import load_text, reference
from proxy.redactor.load.language import blocks
from proxy.tokenization import SHAPES

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
    assert loaded == 10


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
