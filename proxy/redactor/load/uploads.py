"""What an operation says of uploads: texts and files of forms, and CSV files."""

from proxy.redactor.load.forms import Section
from proxy.redactor.load.ids import selects_many
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.rules import BodyPlace, IdPlace, Verb


def check_uploads(section: Section, verb: Verb, faults: RuleFaults) -> None:
    """Note keys of uploads that mean nothing together."""
    if "files" in section and "multipart" not in section and "part" not in section:
        faults.add(
            section.key("files"),
            "'files' are parts of a form, and the rule names none of its texts; write multipart: "
            "{caption: note}, or other_kinds: pass for uploads that hold nobody's data",
        )
    if "part" in section and "csv" not in section:
        faults.add(
            section.key("part"),
            "'part' is the CSV file of a form, and the rule names none of its columns; write csv: "
            "{Email: email}, or multipart: {caption: note} for texts",
        )
    if "part" in section and "multipart" in section:
        faults.add(
            section.key("multipart"),
            "the rows of a CSV file are records each, and a text beside it belongs to none of "
            "them; leave 'multipart' or 'part' out",
        )
    if "csv" in section and verb is not Verb.CREATE:
        faults.add(
            section.key("csv"),
            f"each row of a CSV file becomes a new record, and this is a {verb}; leave 'csv' out, "
            "or make the operation a create",
        )


def lists_ids(section: Section, sent: BodyPlace) -> bool:
    """Whether the answer to an import lists ids by themselves, without objects: ``$.ids[*]``."""
    ident = section.value("id")
    many = isinstance(ident, IdPlace) and selects_many(ident.path)
    return bool(sent.csv) and many
