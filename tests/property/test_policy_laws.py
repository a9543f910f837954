"""The law of access policies: whatever is hidden or redacted, no answer tells one value from
another.

For generated policies and data there are two vaults that differ only in such values. Everything
that the interface can be asked is asked of both, and each answer of one is that of the other, byte
for byte: errors, counts, orders, figures, histories, exports, files. Few values and few keys, so
that what is guessed is often right in one vault and wrong in the other.
"""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.effort import examples
from tests.support.twins import Twins, twins

M = "/api/models/thing"
KEYS = ("a", "b", "c")
NEW = ("new", "other")
#: A record that is in one vault alone, outside of all rows, and that nobody gives a record as its
#: key: that a key is taken is told.
OUTSIDE = "outside"
#: Every field but the key: strings in every storage class, and one of each kind of the others.
FIELDS: dict[str, dict[str, Any]] = {
    "plain": {"type": "string", "storage": "indexed"},
    "parts": {"type": "string", "storage": "indexed_hashed", "partial_match": True},
    "sealed": {"type": "string", "storage": "encrypted"},
    "age": {"type": "integer", "storage": "indexed"},
    "sum": {"type": "decimal", "storage": "indexed"},
    "extra": {"type": "json", "storage": "indexed_hashed"},
    "zone": {"type": "string", "storage": "indexed"},
}
TEXTS, OTHERS = ("plain", "parts", "sealed"), ("age", "sum", "extra")
#: What vaults hold, and what a client asks for or sends as a guess. Two texts have one mask; two
#: are keys that something may hang on.
POOLS: dict[str, tuple[Any, ...]] = {
    "string": ("aaaa11", "bbbb11", "a", "b"), "integer": (1, 2), "decimal": (0.5, 2.25),
    "json": ({"a": 1}, {"a": 2, "b": ["x"]}),
}  # fmt: skip
REDACTED = {"valueType": "redacted", "format": "[a-z]{9}~"}
MASKED = {"valueType": "masked", "mask": {"last": 2}}
ROWS: tuple[Any, ...] = (None, None, {"zone": "north"}, {"$or": [{"zone": "north"}, {"id": "a"}]})
EVERYTHING = ("read", "write", "delete")
ACTIONS = (EVERYTHING,) * 6 + (("read",), ("write",), ("read", "write"))


def pool(name: str) -> tuple[Any, ...]:
    if name in ("id", "record_key"):
        return KEYS
    if name == "zone":
        return ("north", "south")
    return (1, 2) if name == "version" else POOLS[FIELDS[name]["type"]]


class Scenario:
    """Draws a policy, what two vaults hold, and what is asked of both."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.fields: dict[str, Any] = {
            name: self.one("clear", REDACTED, REDACTED, MASKED, "hidden") for name in TEXTS
        }
        self.fields |= {name: self.one("clear", "hidden") for name in OTHERS}
        self.fields["zone"] = self.one("clear", "clear", "hidden")
        self.actions = self.one(*ACTIONS)
        self.rows = self.one(*ROWS)
        self.visible = [name for name, how in self.fields.items() if how != "hidden"]
        self.records = [self.record(key) for key in KEYS]
        self.steps = [self.step() for _ in range(self.number(6, 12))]

    # ------------------------------------------------------------------ draws

    def one(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def perhaps(self, often: int = 2) -> bool:
        """One time in so many."""
        return self.number(1, often) == often

    def name(self) -> str:
        """A field, more often than not one that the client knows."""
        if self.visible and not self.perhaps(4):
            return str(self.one(*self.visible))
        return str(self.one("id", "record_key", "version", *FIELDS))

    # ------------------------------------------------------------------ vaults

    def record(self, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        one: dict[str, Any] = {"id": key}
        other: dict[str, Any] = {"id": key}
        for name, how in self.fields.items():
            first, second = self.pair(name, how)
            one |= {} if first is ... else {name: first}
            other |= {} if second is ... else {name: second}
        return one, other

    def pair(self, name: str, how: Any) -> tuple[Any, Any]:
        """The value of a field in either vault.

        That there is one is told of what is redacted or masked, and not of what is hidden.
        """
        if name == "zone":
            value = self.one("north", "north", "north", "south")
            return value, value
        if how == "clear":
            value = self.one(*pool(name), None)
            return value, value
        if how == "hidden":
            return self.one(*pool(name), None, ...), self.one(*pool(name), None, ...)
        if self.perhaps(6):
            return None, None
        if how == MASKED:
            one = self.one("aaaa11", "bbbb11")
            return one, "bbbb11" if one == "aaaa11" else "aaaa11"
        return self.one(*pool(name)), self.one(*pool(name))

    # ------------------------------------------------------------------ questions

    def filter(self) -> dict[str, Any]:
        if self.perhaps(5):
            wanted: dict[str, Any] = self.one(
                {"search_keys": "aaaa11"},
                {"search_keys": "bbbb"},
                {"$or": [{"plain": "a"}, {"parts": "b"}]},
            )
            return wanted
        return {
            name: self.form(self.one(*pool(name)))
            for name in dict.fromkeys([self.name() for _ in range(self.number(0, 2))])
        }

    def form(self, value: Any) -> Any:
        """A value as it stands in a filter, more often than not alone."""
        if isinstance(value, dict):
            return self.one({"$.a": 1}, {"$.b": ["x"]}, value)
        if self.perhaps():
            return value
        return self.one(
            [value, None],
            {"$not": value},
            {"$like": str(value)},
            {"$not": {"$like": "aaa"}},
            {"$gte": value},
        )

    def options(self) -> dict[str, Any]:
        sort = [
            {self.one(self.name(), "created_at"): self.one("asc", "desc")}
            for _ in range(self.number(0, 1))
        ]
        return {"limit": self.number(1, 4), "offset": self.one(0, 0, 1), "sort": sort}

    def search(self) -> dict[str, Any]:
        return {"filter": self.filter(), **({"options": self.options()} if self.perhaps() else {})}

    def aggregation(self) -> dict[str, Any]:
        if self.perhaps(4):
            return {"next": "CURSOR"}
        metric = self.one(
            {"func": "count"}, {"func": self.one("sum", "min", "avg"), "key": self.name()}
        )
        groups = (
            {"group_by": {"keys": [self.name()], "limit": self.one(1, 9)}} if self.perhaps() else {}
        )
        return {"metrics": {"x": metric}, "filter": self.filter(), **groups}

    def sent(self, *keys: str) -> dict[str, Any]:
        """A record as a client sends it: with guesses of what it does not see."""
        names = {self.name() for _ in range(self.number(0, 3))} - {"id", "record_key", "version"}
        return {"id": self.one(*keys), **{name: self.one(*pool(name)) for name in sorted(names)}}

    def addressed(self) -> tuple[str, dict[str, Any]]:
        """A record at its address, now and then at that of another."""
        key = self.key()
        return f"{M}/{key}", self.sent(*(key,) * 4, *KEYS)

    def update(self) -> dict[str, Any]:
        found: dict[str, Any] = {"records": [self.sent(*KEYS, OUTSIDE)]}
        if self.perhaps(3):
            name = self.one(*TEXTS, *OTHERS) if self.perhaps() else self.name()
            found = {
                "search_key": name,
                "records": [
                    {"age": 2, **({} if name == "version" else {name: self.one(*pool(name))})}
                ],
            }
        return {**found, "return_keys": [self.name()]} if self.perhaps(4) else found

    def step(self) -> tuple[str, str, Any, dict[str, str]]:
        method, path, body = self.one(*STEPS)(self)
        headers = {"Idempotency-Key": "k"} if self.perhaps(6) else {}
        if self.perhaps(5):
            headers[self.one("If-Match", "If-None-Match")] = self.one("TAG", "TAG", "*", '"x"')
        return method, path, body, headers

    def person(self, *, mentions: bool = False) -> dict[str, Any]:
        values = (*POOLS["string"], *KEYS, "x", "1", "north")
        also = {"also": [self.one(*values)]} if self.perhaps() else {}
        return {"value": self.one(*values), **also, **({"mentions": True} if mentions else {})}

    def cascade(self) -> str:
        return f"?cascadeBy={self.name()}" if self.perhaps() else ""

    def key(self) -> str:
        return str(self.one(*KEYS, *KEYS, *NEW, OUTSIDE))


STEPS = (
    *[lambda here: ("POST", M + "/find", here.search())] * 3,
    lambda here: ("POST", "/sf/find-ids", {"schema": "thing", **here.search()}),
    *[lambda here: ("POST", M + "/aggregate", here.aggregation())] * 3,
    lambda here: ("GET", f"{M}/{here.key()}/history?limit=3", None),
    lambda here: ("GET", M + "/export?limit=2", None),
    lambda here: ("GET", f"{M}/{here.key()}/bait", None),
    lambda here: ("POST", "/api/find", {"schema": "thing", **here.search()}),
    *[lambda here: ("POST", M, here.sent(*KEYS, *NEW))] * 2,
    lambda here: ("POST", "/api/v2/models/thing", here.sent(*KEYS, *NEW)),
    lambda here: ("POST", M + "/batch", [here.sent(*NEW), here.sent(*KEYS)]),
    *[lambda here: ("POST", M + "/batch/update", here.update())] * 7,
    *[
        lambda here: (
            "POST",
            M + "/clone",
            {"filter": here.filter(), "update_with": here.sent(*NEW)},
        )
    ]
    * 2,
    *[lambda here: ("POST", f"{M}/{here.key()}/migrate/{here.key()}", None)] * 4,
    *[lambda here: ("GET", f"{M}/{here.key()}", None)] * 2,
    *[lambda here: ("PUT", *here.addressed())] * 3,
    *[lambda here: ("PATCH", *here.addressed())] * 3,
    *[lambda here: ("POST", "/api/persons/find", here.person(mentions=True))] * 2,
    lambda here: ("POST", "/api/persons/erase", here.person()),
    lambda here: ("DELETE", f"{M}/{here.key()}{here.cascade()}", None),
    lambda here: ("POST", M + "/batch/delete" + here.cascade(), {"filter": {"id": [here.key()]}}),
    lambda here: ("GET", "/openapi.json", None),
    lambda here: ("UPLOAD", f"{M}/{here.key()}/files", None),
    lambda here: ("FILE GET", f"{M}/{here.key()}/files", None),
    lambda here: ("FILE DELETE", f"{M}/{here.key()}/files", None),
    lambda here: ("FILE MOVE", f"{M}/{here.key()}/files/move/{here.key()}", None),
)
UPLOAD = {"Content-Type": "multipart/form-data; boundary=b", "x-filename": "cv.txt"}
FILE = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhello\r\n--b--\r\n'
ME = "under:mine"


async def carry_out(pair: Twins, number: int, step: tuple[str, str, Any, dict[str, str]]) -> None:
    method, path, body, headers = step
    if method == "UPLOAD":
        await pair.ask("POST", path, ME, data=FILE, headers={**UPLOAD, **headers})
    elif method == "FILE MOVE":
        await pair.ask("POST", path, ME, json={"attachment_ids": ["FILE"]}, headers=headers)
    elif method.startswith("FILE"):
        await pair.ask_file(method.removeprefix("FILE "), path, ME, number)
    else:
        await pair.ask(
            method, path, ME, headers=headers, **({} if body is None else {"json": body})
        )


async def hold(engine: str, here: Scenario, on_existing: str) -> None:
    rows = {} if here.rows is None else {"rows": {"filter": here.rows}}
    with tempfile.TemporaryDirectory() as folder:
        async with twins(Path(folder), engine, on_existing=on_existing) as pair:
            for world in pair.worlds:
                await world.declare("thing", {"fields": {"id": {"type": "primary_key"}, **FIELDS}})
                await world.policy("mine", "thing", *here.actions, fields=here.fields, **rows)
                # The same with every action, so that what a write did shows also to who may not
                # read.
                await world.policy("all", "thing", *EVERYTHING, fields=here.fields, **rows)
            for one, other in here.records:
                pair.advance(1000)
                await pair.seed("POST", M, one, other)
            if here.rows is not None:
                await pair.seed_one("POST", M, {**here.records[0][0], "id": OUTSIDE, "zone": "out"})
            for number, step in enumerate(here.steps):
                pair.advance(1000)
                await carry_out(pair, number, step)
            for key in (*KEYS, *NEW):
                await pair.ask("GET", f"{M}/{key}/history", "under:all")
            await pair.ask("GET", M + "/export", "under:all")


@pytest.mark.parametrize(("engine", "count"), [("memory", 25), ("sqlite", 6)])
def test_no_answer_tells_a_hidden_or_redacted_value_from_another(engine: str, count: int) -> None:
    @settings(examples(count), suppress_health_check=list(HealthCheck))
    @given(st.composite(Scenario)(), st.sampled_from(("refuse", "update")))
    def holds(here: Scenario, on_existing: str) -> None:
        asyncio.run(hold(engine, here, on_existing))

    holds()


#: What lists records.
LISTS: tuple[tuple[str, str, Any], ...] = (
    ("POST", M + "/find", {"options": {"limit": 9}}),
    ("POST", M + "/find", {"filter": {"zone": "north"}, "options": {"limit": 4, "offset": 1}}),
    (
        "POST",
        "/sf/find-ids",
        {"schema": "thing", "options": {"limit": 9, "sort": [{"age": "desc"}]}},
    ),
    ("GET", M + "/export?limit=9", None),
)
ROOM = 4096  #: bytes of a page
SIZES = (0, 1, 700, 1500, 5000)


@pytest.mark.parametrize("rows", [None, {"zone": "north"}])
@pytest.mark.parametrize("how", ["hidden", REDACTED])
async def test_no_page_ends_by_the_length_of_what_is_not_shown(
    tmp_path: Path, how: Any, rows: Any
) -> None:
    """Pages end by their size: by that of what they show."""
    within = {} if rows is None else {"rows": {"filter": rows}}
    lengths = Random(7)
    async with twins(tmp_path, "sqlite") as pair:
        for world in pair.worlds:
            world.services.limits = replace(world.services.limits, page_bytes=ROOM)
            long = {"sealed": {**FIELDS["sealed"], "max_length": 5000}}
            long |= {"plain": {**FIELDS["plain"], "max_length": 5000}}
            fields = {"id": {"type": "primary_key"}, **FIELDS, **long}
            await world.declare("thing", {"fields": fields})
            await world.policy("mine", "thing", *EVERYTHING, fields={"sealed": how}, **within)
        for number in range(12):
            same = {"id": f"k{number}", "age": number, "zone": "north", "plain": "x" * 100 * number}
            one, other = [{**same, "sealed": "a" * lengths.choice(SIZES)} for _ in "ab"]
            await pair.seed("POST", M, one, other)
        counts = set()
        for method, path, body in LISTS:
            page = (
                await pair.ask(method, path, ME, **({} if body is None else {"json": body}))
            ).json
            counts.add(page["meta"]["count"])
            while body is not None and page["meta"].get("next"):
                options = {**body["options"], "offset": 0, "next": "CURSOR"}
                page = (await pair.ask(method, path, ME, json={**body, "options": options})).json
                counts.add(page["meta"]["count"])
        assert min(counts) < 4  # they do end by the size of what they show


@pytest.mark.parametrize("rows", [None, {"zone": "north"}])
@pytest.mark.parametrize("how", ["hidden", REDACTED])
async def test_no_page_of_a_history_ends_by_the_length_of_what_is_not_shown(
    tmp_path: Path, how: Any, rows: Any
) -> None:
    """Its versions all come, each once, in pages that are the same in both vaults."""
    within = {} if rows is None else {"rows": {"filter": rows}}
    lengths, path = Random(7), f"{M}/k/history?limit=9"
    async with twins(tmp_path, "sqlite") as pair:
        for world in pair.worlds:
            world.services.limits = replace(world.services.limits, page_bytes=ROOM)
            long = {name: {**FIELDS[name], "max_length": 5002} for name in ("sealed", "plain")}
            fields = {"id": {"type": "primary_key"}, **FIELDS, **long}
            await world.declare("thing", {"fields": fields})
            await world.policy("mine", "thing", *EVERYTHING, fields={"sealed": how}, **within)
        for number in range(24):
            pair.advance(1000)
            same = {"age": number, "zone": "north", "plain": "x" * 200 * (number % 9)}
            one, other = [
                {**same, "sealed": f"{number}" + "a" * lengths.choice(SIZES)} for _ in "ab"
            ]
            if number:
                await pair.seed("PATCH", f"{M}/k", one, other)
            else:
                await pair.seed("POST", M, {"id": "k", **one}, {"id": "k", **other})
        pages = [(await pair.ask("GET", path, ME)).json]
        while pages[-1]["meta"].get("next"):
            pages.append((await pair.ask("GET", f"{path}&next=CURSOR", ME)).json)
        seen = [one["record"]["age"] for page in pages for one in page["data"]]
        assert seen == list(range(23, -1, -1))
        sizes = [page["meta"]["count"] for page in pages[:-1]]
        assert min(sizes) < 9  # they do end by the size of what they show
        assert max(sizes) > 1


async def test_no_search_for_a_person_ends_by_the_length_of_what_is_not_shown(
    tmp_path: Path,
) -> None:
    """It ends after a number of records; they are read in parts limited in bytes."""
    count, batch = 1100, 100
    async with twins(tmp_path, "sqlite") as pair:
        for world in pair.worlds:
            sealed = {"sealed": {**FIELDS["sealed"], "max_length": 10_000}}
            await world.declare(
                "thing", {"fields": {"id": {"type": "primary_key"}, **FIELDS, **sealed}}
            )
            await world.policy("mine", "thing", *EVERYTHING, fields={"sealed": "hidden"})
        for start in range(0, count, batch):
            one, other = [
                [
                    {"id": f"k{number}", "plain": "ann@example.com", "sealed": "a" * length}
                    for number in range(start, start + batch)
                ]
                for length in (10, 9_000)
            ]
            await pair.seed("POST", f"{M}/batch", one, other)
        wanted, path = {"value": "ann@example.com"}, "/api/persons/find"
        first = (await pair.ask("POST", path, ME, json=wanted)).json
        rest = (await pair.ask("POST", f"{path}?next=CURSOR", ME, json=wanted)).json
        assert (first["meta"]["count"], rest["meta"]["count"]) == (1000, 100)
