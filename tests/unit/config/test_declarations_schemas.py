from pathlib import Path

import pytest

from proxy.config.declarations import read_schemas
from proxy.errors import Code, VaultError
from proxy.model.schema import FieldType

CONTACT = """\
# people
name: contact
fields:
  id: {type: primary_key}
  email:
    type: string
    required: true
    max_length: 300
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def faults(path: Path) -> list[tuple[str, str]]:
    with pytest.raises(VaultError) as refused:
        read_schemas([path])
    assert refused.value.code is Code.INVALID_SCHEMA
    return [
        (detail.source.removeprefix(f"{path}/"), detail.text) for detail in refused.value.details
    ]


def places(path: Path) -> list[str]:
    return [place for place, _ in faults(path)]


def test_a_file_declares_a_schema_with_numbers_and_flags(tmp_path: Path) -> None:
    found = read_schemas([written(tmp_path, contact=CONTACT) / "contact.yaml"])
    (schema,) = found.found
    email = schema.field("email")
    assert (schema.name, email.type, email.required, email.max_length) == (
        "contact",
        FieldType.STRING,
        True,
        300,
    )


def test_a_folder_holds_many_and_a_file_several(tmp_path: Path) -> None:
    two = CONTACT.replace("contact", "b") + "---\n" + CONTACT.replace("contact", "c")
    written(tmp_path, z=CONTACT.replace("contact", "z"), a=two, empty="# nothing\n")
    (tmp_path / "notes.txt").write_text("{")
    assert [schema.name for schema in read_schemas([tmp_path]).found] == ["b", "c", "z"]


def test_nothing_declares_nothing(tmp_path: Path) -> None:
    assert read_schemas([]).found == ()
    assert read_schemas([tmp_path]).found == ()


def test_every_fault_of_all_files_is_told_with_its_line(tmp_path: Path) -> None:
    wrong = CONTACT.replace("type: string", "type: text").replace("300", "0")
    written(tmp_path, a=wrong, b="name: b\nfields:\n  x: {type: string}\n")
    assert places(tmp_path) == ["a.yaml:6:5", "a.yaml:8:5", "b.yaml:2:1"]


def test_where_something_is_missing_the_thing_around_it_is_named(tmp_path: Path) -> None:
    written(tmp_path, a="name: a\nfields:\n  id: {type: primary_key}\n  x: {}\n")
    assert places(tmp_path) == ["a.yaml:4:3"]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("fields: {id: {type: primary_key}}", "a.yaml:1:1", "needs `name:`"),
        ("- a", "a.yaml:1:1", "needs `name:`"),
        ("name: 5", "a.yaml:1:1", "needs `name:`"),
        ("name: a\nname: b", "a.yaml:2:1", "name stands twice"),
        ("name: a\nfields: {id: {type: primary_key}}\n---\nname: a", "a.yaml:4:1", "above already"),
        ("name: a-b\nfields: {id: {type: primary_key}}", "a.yaml:1:1", "name of a schema"),
        ("name: !!python/name:os.system x", "a.yaml:1:7", "tags"),
        ("name: [", "a.yaml:1:8", "not YAML"),
        ("{a: b}: c", "a.yaml:1:1", "a name is needed"),
        ("name: \x01", "a.yaml", "not YAML"),
    ],
)
def test_a_file_that_is_none_is_told_where_it_is_not(
    tmp_path: Path, text: str, place: str, reason: str
) -> None:
    ((found, told),) = faults(written(tmp_path, a=text))
    assert found == place
    assert reason in told


def test_a_word_such_as_no_is_a_text(tmp_path: Path) -> None:
    wrong = CONTACT.replace("required: true", "required: no")
    assert [text for _, text in faults(written(tmp_path, a=wrong))] == ["This is true or false."]


def test_what_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    assert "no such file" in faults(tmp_path / "none.yaml")[0][1]
    (tmp_path / "a.yaml").write_bytes(b"name: \xff")
    (tmp_path / "b.yaml").write_bytes(b"#" * (1024 * 1024 + 1))
    assert [text.split(":")[0] for _, text in faults(tmp_path)] == [
        "not UTF-8",
        "larger than 1 MiB",
    ]


def test_a_place_is_found_by_name_and_pointer(tmp_path: Path) -> None:
    found = read_schemas([written(tmp_path, a=CONTACT)])
    assert found.place("contact", "/fields/email/type").endswith("a.yaml:6:5")
    assert found.place("contact", "/fields/email/storage").endswith("a.yaml:5:3")
