import pytest

from proxy.errors import Code, VaultError
from proxy.model.rights import FULL, Rights
from proxy.vault.records.query import cursor_context, open_cursor
from tests.support.audit import audit_context
from tests.support.contacts import make_contacts


async def test_a_cursor_opens_in_its_own_context_alone():
    records = (await make_contacts()).records
    cursor = records.cursors.seal(b"place", cursor_context(records, "me", b"question"))
    assert b"place" not in cursor.encode()
    refusal = (Code.INVALID_OPTIONS, "/options/next")
    assert (
        open_cursor(records, cursor, cursor_context(records, "me", b"question"), refusal)
        == b"place"
    )
    other = records.under(Rights(FULL.actions, records.schema, mark="other"), None, audit_context())
    contexts = [
        cursor_context(records, "you", b"question"),
        cursor_context(records, "me", b"another"),
        cursor_context(records, "me"),
        cursor_context(other, "me", b"question"),
    ]
    for context, sent in [
        *((context, cursor) for context in contexts),
        (cursor_context(records, "me", b"question"), cursor[1:]),
    ]:
        with pytest.raises(VaultError) as caught:
            open_cursor(records, sent, context, refusal)
        assert (caught.value.code, caught.value.details[0].source) == refusal
