from proxy.api.openapi.world import CONTACT
from proxy.audit import events
from proxy.audit.events import AuditEvent
from proxy.model.record import RecordDraft
from proxy.vault.records import visibility
from tests.support.world import world


async def test_use_cases_tell_records_and_fields_whoever_asks(tmp_path):
    async with world(tmp_path) as here:
        await here.declare("contact", CONTACT)
        records = here.catalog.records("contact")
        noted = events.begin_page()
        visibility.note_written(records, [], [RecordDraft("1", {"id": "1", "name": "x"})])
        visibility.note_shown(records, [])
        visibility.added_up(records, 2, ["name"])
        written, shown = noted.parts
        assert (written.event, written.fields, written.count) == (
            AuditEvent.WRITE,
            {"id", "name"},
            0,
        )
        assert (shown.event, shown.fields, shown.count) == (AuditEvent.REVEAL, {"name"}, 2)
