from proxy.audit.events import EventKind
from proxy.model.record import Record, RecordDraft
from proxy.model.rights import FULL
from tests.support.audit import audit_context
from tests.support.examples import CONTACT
from tests.support.world import world

AT = Record(1, "1", {"id": "1", "name": "x"}, 1, 0, 0)


async def test_records_tell_the_context_of_their_request_and_no_other(tmp_path):
    async with world(tmp_path) as here:
        await here.declare("contact", CONTACT)
        one, other = audit_context(), audit_context()
        records = here.catalog.records("contact")
        mine, _ = records.under(FULL, None, one), records.under(FULL, None, other)
        mine.note_written([AT], [RecordDraft("1", AT.fields)])
        mine.when(lambda _record: None).note_shown(["1"])
        mine.note(EventKind.REVEAL, [None, None], ["name"])
        written, shown = one.events
        assert (written.kind, written.fields, [*written.keys]) == (
            EventKind.WRITE,
            {"id", "name"},
            ["1"],
        )
        assert (shown.kind, shown.fields, shown.unnamed) == (
            EventKind.REVEAL,
            {field.name for field in records.schema.fields},
            2,
        )
        assert other.events == []


async def test_without_a_request_nothing_is_collected(tmp_path):
    async with world(tmp_path) as here:
        await here.declare("contact", CONTACT)
        records = here.catalog.records("contact")
        records.note_shown(["1"])
        records.note_files(EventKind.DELETE, ["1"], ["f"])
        assert records.audit is None
        assert records.tampered(2).args
        assert here.catalog.records("contact") is records
