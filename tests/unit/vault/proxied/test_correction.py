"""What a correction makes of a record, and of versions of it that are in doubt."""

from collections.abc import Sequence

import msgspec
import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Record, RecordDraft
from proxy.model.schema import Value
from proxy.storage.changes import Change
from proxy.tokenization import SHAPES
from proxy.vault.body import RecordBody
from proxy.vault.next_version import ProxiedDraft
from proxy.vault.proxied.binding import bind
from proxy.vault.proxied.correction import correct_record
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import doubt, promote, stage_creates, stage_updates
from proxy.vault.records.commit import nothing
from proxy.vault.records.repository import Records
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, person

KEY = "17"


async def bench() -> Bench:
    """A record ``17`` with a plain field beside the usual ones, and a JSON number."""
    usual = person()
    plain = {**usual.shapes, "born": SHAPES["plain"]({})}
    made = await make_bench(recipe=usual._replace(shapes=plain))
    told = draft(name="Ann", email="a@example.com", born="1987-04-12", tags=["a", "b"])
    numbers = {**told.fields, "phone": (Value("4711", json=True),)}
    (held,) = await stage_creates(made.people, [ProxiedDraft(numbers)], [None])
    await bind(made.people, [(held, KEY)])
    return made


async def live(made: Bench) -> RecordBody:
    (row,) = (await made.people.by_key([KEY])).values()
    return made.people.sealer.open(row)


async def shown(made: Bench, content: RecordBody) -> dict[str, list[str | None]]:
    """What an answer with the tokens of these values shows."""
    places = tuple((name, one.token) for name, values in content.values.items() for one in values)
    revealed = await reveal_objects(made.people, [AnswerObject(KEY, places)])
    made.clock.advance(1)
    await reconcile_objects(made.people, [AnswerObject(KEY, places)], revealed, made.clock())
    texts: dict[str, list[str | None]] = {}
    for (name, _), value in zip(places, revealed.values[0], strict=True):
        texts.setdefault(name, []).append(value.text if value is not None else None)
    return texts


async def correct(made: Bench, **fields: str | list[str] | None) -> Record | None:
    made.clock.advance(1)
    return await correct_record(
        Records(made.people), RecordDraft(KEY, dict(fields)), "chief", nothing
    )


async def test_tokens_stay_and_lead_to_the_new_values() -> None:
    made = await bench()
    before = await live(made)
    record = await correct(made, name="Anna", tags=["a", "c"], phone="4712")
    assert record is not None
    assert (record.version, record.by, record.fields["tags"]) == (2, "chief", ["a", "c"])
    after = await live(made)
    assert after.value_tokens() == before.value_tokens()
    assert after.following > before.following
    # what did not change keeps its number, and so what stands for it where it is redacted
    assert after.values["email"] == before.values["email"]
    assert after.values["tags"][0] == before.values["tags"][0]
    assert (await shown(made, before))["tags"] == ["a", "c"]
    assert (await shown(made, before))["phone"] == ["4712"]


async def test_a_value_that_is_taken_away_leads_nowhere() -> None:
    made = await bench()
    before = await live(made)
    await correct(made, email=None, tags=[])
    texts = await shown(made, before)
    assert (texts["email"], texts["tags"], texts["name"]) == ([None], [None, None], ["Ann"])
    token = before.values["email"][0].token
    hashed = made.people.token_hash("email", token)
    assert await made.store.by_tokens(made.people.table, [hashed]) == {}


@table(
    "fields",
    [
        {"email": "b@example.com"},
        {"born": "1990-01-01"},
        {"born": None},
        {"tags": ["a"]},
        {"tags": "a"},
        {"phone": "no number"},
        {"phone": '"4711"'},
    ],
)
async def test_what_the_application_would_have_to_know_is_refused(
    fields: dict[str, str | list[str] | None],
) -> None:
    made = await bench()
    before = await live(made)
    with pytest.raises(VaultError) as refused:
        await correct(made, name="Anna", **fields)
    assert refused.value.code is Code.INVALID_RECORD
    assert [detail.source for detail in refused.value.details] == [f"/{name}" for name in fields]
    assert await live(made) == before


async def test_nobody_is_corrected_where_there_is_nobody() -> None:
    made = await bench()
    draft_ = RecordDraft("18", {"name": "Eve"})
    assert await correct_record(Records(made.people), draft_, "chief", nothing) is None


@table("taken", [False, True])
async def test_an_update_in_doubt_keeps_its_own_fields_and_follows_in_others(taken: bool) -> None:
    made = await bench()
    (held,) = await stage_updates(made.people, [(KEY, draft(tags=["x", "y"]))])
    await doubt(made.people, [held], answered=True)
    with pytest.raises(VaultError) as refused:
        await correct(made, tags=["v", "w"])
    assert refused.value.code is Code.CONFLICT
    await correct(made, name="Anna")
    old = await live(made)
    content = held.content if taken else old
    assert content is not None
    texts = await shown(made, msgspec.structs.replace(content))
    assert (texts["name"], texts["tags"]) == (["Anna"], ["x", "y"] if taken else ["a", "b"])
    (row,) = (await made.people.by_key([KEY])).values()
    assert row.staged == 0
    assert [one.text for one in (await live(made)).values["name"]] == ["Anna"]
    await correct(made, tags=["v", "w"])


async def test_the_version_before_stays_in_the_history() -> None:
    made = await bench()
    given: list[Record] = []

    def closing(records: Sequence[Record]) -> Sequence[Change]:
        given.extend(records)
        return ()

    await correct_record(Records(made.people), RecordDraft(KEY, {"name": "Anna"}), "chief", closing)
    assert [record.fields["name"] for record in given] == ["Anna"]
    past, total = await made.store.past(
        made.people.table, made.people.key_hash(KEY), 10, 0, 1 << 20
    )
    assert (total, [one.version for one in past]) == (1, [1])


async def test_a_field_that_is_taken_away_goes_from_earlier_versions_that_are_kept() -> None:
    made = await make_bench(recipe=person()._replace(keeps=True))
    (held,) = await stage_creates(made.people, [draft(name="Ann", born="1987-04-12")], [None])
    await bind(made.people, [(held, KEY)])
    first = await live(made)
    (changed,) = await stage_updates(made.people, [(KEY, draft(name="Anna", born="1988-05-13"))])
    await promote(made.people, changed, {})
    await correct(made, name=None)
    assert set((await live(made)).earlier) == {"born"}
    assert await shown(made, first) == {"name": [None], "born": ["1987-04-12"]}
    await correct(made, born="1999-09-09")
    assert await shown(made, first) == {"name": [None], "born": ["1987-04-12"]}
    assert await shown(made, await live(made)) == {"born": ["1999-09-09"]}
