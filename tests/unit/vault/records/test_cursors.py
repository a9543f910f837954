import pytest

from proxy.errors import Code, VaultError
from proxy.model.rights import FULL, Rights
from proxy.vault.records.cursors import bound, opened, seal_cursor
from tests.support.audit import audit_context
from tests.support.contacts import make_contacts


async def test_a_cursor_opens_in_its_own_context_alone():
    records = (await make_contacts()).records
    cursor = seal_cursor(records, b"place", bound(records, "me", b"question"))
    assert b"place" not in cursor.encode()
    refusal = (Code.INVALID_OPTIONS, "/options/next")
    assert opened(records, cursor, bound(records, "me", b"question"), refusal) == b"place"
    other = records.under(Rights(FULL.actions, records.schema, mark="other"), None, audit_context())
    contexts = [
        bound(records, "you", b"question"),
        bound(records, "me", b"another"),
        bound(records, "me"),
        bound(other, "me", b"question"),
    ]
    for context, sent in [
        *((context, cursor) for context in contexts),
        (bound(records, "me", b"question"), cursor[1:]),
    ]:
        with pytest.raises(VaultError) as caught:
            opened(records, sent, context, refusal)
        assert (caught.value.code, caught.value.details[0].source) == refusal
