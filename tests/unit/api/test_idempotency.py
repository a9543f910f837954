import pytest

KEY = {"Idempotency-Key": "a-1"}


async def test_a_repeated_delete_is_answered_as_the_first(here):
    await here.client("POST", "/api/models/contact", json={"id": "k"})
    for replayed in (None, "true"):
        answer = await here.client("DELETE", "/api/models/contact/k", headers=KEY)
        assert (answer.status, answer.body, answer.headers.get("Idempotent-Replayed")) == (
            204,
            b"",
            replayed,
        )


@pytest.mark.parametrize("keys", [[""], ["a b"], ["å"], ["k" * 256], ["a", "b"]])
async def test_a_key_that_cannot_be_one_is_400(here, keys):
    headers = [("Idempotency-Key", key) for key in keys]
    async with here.client.session.post(
        here.client.address + "/api/models/contact",
        json={"id": "k"},
        headers=[("Authorization", "Bearer writer"), *headers],
    ) as answer:
        assert answer.status == 400
        assert (await answer.json(content_type=None))["errors"][0]["source"] == "Idempotency-Key"


async def test_a_search_is_never_kept(here):
    for known in (0, 1):
        answer = await here.client("POST", "/api/models/contact/find", json={}, headers=KEY)
        assert (answer.json["meta"]["total"], answer.headers.get("Idempotent-Replayed")) == (
            known,
            None,
        )
        await here.client("POST", "/api/models/contact", json={"id": "k"})


async def test_what_is_no_record_keeps_its_answer_as_well(here):
    body = {"name": "crm", "environment_id": "default"}
    answers = [
        await here.client("POST", "/api/clients", "chief", json=body, headers=KEY) for _ in range(2)
    ]
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].body == answers[1].body
