from proxy.api import legacy_records
from proxy.api.openapi.recordparts import COMPONENTS, kept, shown
from proxy.model.record import Record
from proxy.model.rights import FULL


def test_the_document_has_every_field_of_an_answer_and_no_other():
    answer = legacy_records.record_json(FULL.shown(Record(1, "r", {}, 1, 0, 0)), "se")
    assert set(COMPONENTS["KeptRecord"]["required"]) == answer.keys()
    assert COMPONENTS["KeptRecord"]["properties"].keys() == answer.keys()
    assert shown().keys() == answer.keys()


def test_examples_say_both_names_and_the_history_only_fields():
    record = shown(record_key="r", range_key1=1)
    assert (record["key"], record["range_key"]) == ("r", 1)
    assert (
        kept(record).keys()
        == legacy_records.legacy_version_json(FULL.shown(Record(1, "r", {}, 1, 0, 0)))[
            "record"
        ].keys()
    )
