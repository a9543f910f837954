"""States of fields, and their ranks."""

from proxy.redactor.load import load_text
from proxy.redactor.tools.protection_facts import field_facts, protection
from tests.support.rules import with_fields
from tests.support.table import table


def ranked(*declared: str) -> list[float]:
    """The protection of fields, in the order of their declarations."""
    texts = [f"f{number}: {one}" for number, one in enumerate(declared)]
    (entity,) = load_text(with_fields(*texts, entity="population: 1000")).entities
    return [protection(one) for one in entity.fields.values()]


@table(
    ("more", "less"),
    [
        ("{kind: email}", "{kind: email, token: {shape: email, same: true}}"),
        ("{kind: name}", "{kind: name, token: plain}"),
        ("{kind: name}", "{kind: name, stored: plain}"),
        ("{kind: phone, token: {shape: numeric, keep_last: 2}}", "{kind: phone, token: {shape: numeric, keep_last: 4}}"),
        ("{kind: name, token: {shape: opaque, same: true}, find: [exact]}",
         "{kind: name, token: {shape: opaque, same: true}, find: [exact, partial]}"),
    ],
)  # fmt: skip
def test_a_field_that_tells_less_ranks_higher(more, less):
    higher, lower = ranked(more, less)
    assert higher > lower


def test_the_state_of_a_field_is_in_words():
    facts = field_facts(load_text(with_fields("f: {kind: name, stored: plain}")))
    (of,) = [one for subject, one in facts.items() if subject.endswith(".f")]
    assert {what: fact.text for what, fact in of.items() if what in ("kind", "stored", "find exact")} == {
        "kind": "name", "stored": "plain", "find exact": "impossible",
    }  # fmt: skip
