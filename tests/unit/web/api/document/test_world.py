from proxy.model.definition import read_definition
from proxy.model.limits import DEFAULTS
from proxy.model.reading import read_drafts
from proxy.web.api.bodies import parse
from proxy.web.api.document.world import CONTACT, RECORDS
from proxy.web.api.wire import encode


def test_the_records_of_the_examples_fit_their_schema():
    schema = read_definition("contact", CONTACT)
    drafts = read_drafts(schema, parse(encode(RECORDS)), partial=False, limits=DEFAULTS)
    assert [draft.key for draft in drafts] == ["c-1", "c-2", "c-3"]
