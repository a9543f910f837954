from proxy.audit import noting
from proxy.audit.members import Event
from proxy.model.record import Draft
from proxy.vault import telling
from proxy.web.api.document.world import CONTACT
from tests.support.world import world


async def test_use_cases_tell_records_and_fields_whoever_asks(tmp_path):
    async with world(tmp_path) as here:
        await here.declare("contact", CONTACT)
        records = here.catalog.records("contact")
        noted = noting.begin()
        telling.written(records, [], [Draft("1", {"id": "1", "name": "x"})])
        telling.shown(records, [])
        telling.added_up(records, 2, ["name"])
        written, shown = noted.parts
        assert (written.event, written.fields, written.count) == (Event.WRITE, {"id", "name"}, 0)
        assert (shown.event, shown.fields, shown.count) == (Event.REVEAL, {"name"}, 2)
