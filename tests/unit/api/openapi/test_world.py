from proxy.api.openapi.world import CONTACT, RECORDS
from proxy.api.request import parse_json
from proxy.api.wire import encode_json
from proxy.model.record import DEFAULTS
from proxy.model.record_reader import read_drafts
from proxy.model.schema_document import read_definition


def test_the_records_of_the_examples_fit_their_schema():
    schema = read_definition("contact", CONTACT)
    drafts = read_drafts(schema, parse_json(encode_json(RECORDS)), partial=False, limits=DEFAULTS)
    assert [draft.key for draft in drafts] == ["c-1", "c-2", "c-3"]
