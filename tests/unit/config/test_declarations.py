from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.config.declarations import (
    DeclarationKind,
    plural,
    read_files,
    read_policies,
    read_schemas,
)
from proxy.errors import Code, VaultError
from proxy.model.policy_reader import read_policy
from proxy.model.schema import FieldType
from tests.support.files import mounted
from tests.unit.model.test_policy_reader import EXAMPLE

KIND: DeclarationKind[Any] = DeclarationKind(
    "policy", "`name:`", Code.INVALID_POLICY, lambda name, raw: (name, raw)
)


def test_values_are_read_without_the_traps_of_yaml(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(
        "name: x\nv: [no, 012, 5, -1.50, 1e3, true, null, 'null', '5']\n"
    )
    (one,) = read_files(KIND, [tmp_path]).declared
    assert one == ("x", {"v": ["no", "012", 5, Decimal("-1.50"), "1e3", True, None, "null", "5"]})


def test_every_fault_has_its_line_and_the_noun_of_the_kind(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(
        "name: x\n---\nname: x\n---\nfields: 5\n---\nname: y\nname: z\n"
    )
    with pytest.raises(VaultError) as refused:
        read_files(KIND, [tmp_path, tmp_path / "none"])
    assert refused.value.code is Code.INVALID_POLICY
    assert "policies" in refused.value.message
    told = [(detail.source.rpartition("/")[2], detail.text) for detail in refused.value.details]
    assert [place for place, _ in told] == ["a.yaml:3:1", "a.yaml:5:1", "a.yaml:8:1", "none"]
    assert "policy" in told[0][1]


def test_where_a_part_stands_is_known(tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_text("name: x\nfields:\n  a:\n    b: 5\n")
    place = read_files(KIND, [file]).position
    assert [place("x", at) for at in ("/fields/a/b", "/fields/a/b/c", "name", "/other")] == [
        f"{file}:4:5",
        f"{file}:4:5",
        f"{file}:1:1",
        f"{file}:1:1",
    ]


def test_plurals():
    assert (plural("policy"), plural("schema")) == ("policies", "schemas")


#: As the interface shows it.
TEXT = """\
name: support                     # letters and digits
schema: contact
actions: [read, write]            # read, write, delete
fields:                           # absent: all, clear
  email: {valueType: redacted, format: "[a-z]{8}@example.org"}
  phone: {valueType: masked, mask: {last: 2}}
  passport: hidden
  city: clear
rows: {filter: {region: north}}
external_acl: https://app.example.com/allowed
firewall: {mode: mask}
cors: {origins: ["https://app.example.com"]}
"""


def test_a_file_says_what_a_body_says(tmp_path: Path):
    (tmp_path / "support.yaml").write_text(TEXT)
    assert read_policies([tmp_path]).declared == (read_policy("support", EXAMPLE),)


def test_faults_have_their_lines(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(TEXT.replace("[a-z]{8}", "[a-z]").replace("write", "fly"))
    with pytest.raises(VaultError) as refused:
        read_policies([tmp_path])
    assert refused.value.code is Code.INVALID_POLICY
    assert [detail.source.rpartition("/")[2] for detail in refused.value.details] == [
        "a.yaml:3:17",
        "a.yaml:5:32",
    ]


def test_policies_that_are_replaced_while_they_are_read_are_never_mixed(tmp_path: Path):
    """The first version hides the passport in the first file, the second one in the second."""
    other = TEXT.replace("name: support", "name: sales")
    bare = "  passport: hidden\n"
    versions = [(TEXT, other.replace(bare, "")), (TEXT.replace(bare, ""), other)]
    folder = mounted(tmp_path, ("one.yaml", "two.yaml"), versions)
    for most in (2, 3, 5):
        type(folder).swaps = most
        hiding = [one.name for one in read_policies([folder]).declared if "passport" in one.fields]
        assert len(hiding) == 1
    type(folder).swaps = 99
    with pytest.raises(VaultError) as refused:
        read_policies([folder])
    assert [one.text for one in refused.value.details] == [
        "changes while it is read: load the policies once they are settled"
    ]


def test_a_link_to_nothing_is_a_fault_and_not_left_out(tmp_path: Path):
    written(tmp_path, contact=CONTACT)
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    assert places(tmp_path) == ["gone.yaml"]


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
    (schema,) = found.declared
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
    assert [schema.name for schema in read_schemas([tmp_path]).declared] == ["b", "c", "z"]


def test_nothing_declares_nothing(tmp_path: Path) -> None:
    assert read_schemas([]).declared == ()
    assert read_schemas([tmp_path]).declared == ()


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
    assert found.position("contact", "/fields/email/type").endswith("a.yaml:6:5")
    assert found.position("contact", "/fields/email/storage").endswith("a.yaml:5:3")
