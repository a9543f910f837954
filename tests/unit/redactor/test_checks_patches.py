import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import desk

PATCH = '{match: "PATCH /p/{id}", update: p}'
BODIES = [
    b'[{"op": "replace", "path": "/name", "value": "Zorbina"}]',
    b'[ {"path": "/name", "op" : "add", "value": "Zorbina"} ]',
    (
        b'{"schemas": ["urn:x:PatchOp"], "Operations": [{"op": "replace", "path": "name", "value": '
        b'"Zorbina"}]}'
    ),
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    "kind", [b"application/json-patch+json", b"application/json", b"application/scim+json"]
)
async def test_a_list_of_operations_is_refused_and_nothing_is_kept(body, kind):
    one = await desk("{match: POST /p, create: p}", PATCH)
    with pytest.raises(VaultError) as caught:
        await one.send("PATCH /p/1", body, ((b"Content-Type", kind),))
    assert caught.value.code is Code.UNREADABLE_BODY
    assert "Zorbina" not in caught.value.message
    assert await one.counts() == (0, 0, 0)


async def test_by_its_type_it_is_one_whatever_it_holds():
    one = await desk(PATCH)
    for kind in (b"application/json-patch+json", b"Application/JSON-Patch+JSON; charset=utf-8"):
        with pytest.raises(VaultError):
            await one.send("PATCH /p/1", b'{"name": "Zorbina"}', ((b"Content-Type", kind),))


async def test_other_documents_pass():
    one = await desk(PATCH)
    bodies = ({"vip": True}, {"op": "hidden"}, {"name": "Ann", "op": "x", "path": "/y"})
    for number, body in enumerate(bodies):
        await one.send(f"PATCH /p/{number}", body)
    assert one.events["staged"] == len(bodies)
