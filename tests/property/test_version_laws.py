"""Whatever an application with versions does, each of them is shown as it is (``versions: keep``)."""

import asyncio
from html import unescape
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.vault.expiry import reap
from proxy.vault.proxied.binding import RECONCILE_GRACE
from tests.support.effort import examples
from tests.support.exchanges import HTML, Desk
from tests.unit.redactor.exchange.test_settle_versions import WEEK, cms

VALUES = {
    "name": ("Ann Ek", "Anna Alm", "Bo Ek", ""),
    "email": ("a@example.se", "b@example.se", "c@example.se"),
    "phone": ("08-123 456 78", "08-123 456 79", "112"),
    "born": ("1950-05-05", "1999-09-09", "2001-01-01", None),
    "tags": (["one"], ["one", "two"], ["two", "one", "three"], []),
}
BACK = ((b"Location", b"/card/1"),)
VERSIONS = ("published", "draft", "sv")
BODY = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(of) for name, of in VALUES.items()}
)
STEP = st.one_of(
    st.tuples(
        st.just("save"),
        st.sampled_from(VERSIONS),
        BODY,
        st.sampled_from(("shown", "other", "empty", "lost", "error", "redirect")),
    ),
    st.tuples(st.just("refused"), BODY),
    st.tuples(st.just("copy"), st.sampled_from(VERSIONS), st.sampled_from(VERSIONS)),
    st.tuples(st.sampled_from(("read", "page")), st.sampled_from(VERSIONS)),
    st.tuples(st.just("back"), st.sampled_from(VERSIONS), st.sampled_from(VERSIONS)),
    st.tuples(st.just("wait"), st.sampled_from((1, RECONCILE_GRACE + 1, WEEK + 1))),
)


FIRST = {
    "name": "Ann Ek",
    "email": "a@example.se",
    "phone": "08-123 456 78",
    "born": "1950-05-05",
    "tags": ["one"],
}


class Application:
    """What it stores of each version of its one record, and what that stands for."""

    def __init__(self, one: Desk, stored: Any) -> None:
        self.desk = one
        self.stored = dict.fromkeys(VERSIONS, stored)
        self.meant = {version: {"id": 1, **FIRST} for version in VERSIONS}

    async def save(self, version: str, body: dict[str, Any], how: str) -> None:
        call = await self.desk.send("PATCH /p/1", body)
        self.stored[version] = {**self.stored[version], **call.json}
        self.meant[version] = {**self.meant[version], **body}
        if how == "lost":
            await call.exchange.failed(sent=True)
        elif how == "redirect":
            await call.answer(302, b"", BACK)
        elif how in ("error", "empty"):
            await call.answer(500 if how == "error" else 204)
        else:
            shown = version if how == "shown" else "published"
            assert await call.seen(200, self.stored[shown]) == self.meant[shown]

    async def refused(self, body: dict[str, Any]) -> None:
        await (await self.desk.send("PATCH /p/1", body)).answer(422, {"error": "no"})

    async def copy(self, source: str, target: str) -> None:
        self.stored[target], self.meant[target] = self.stored[source], self.meant[source]
        call = await self.desk.send("POST /p/1/publish", {})
        assert await call.seen(200, self.stored[target]) == self.meant[target]

    async def read(self, version: str) -> None:
        shown = await self.desk.shown([self.stored[version]], "GET /p")
        assert shown == [self.meant[version]]
        assert await self.desk.shown(self.stored[version]) == self.meant[version]

    async def back(self, version: str, target: str) -> None:
        """Read, and saved as it was shown."""
        shown = await self.desk.shown(self.stored[version])
        await self.save(target, {name: shown[name] for name in FIRST}, "shown")

    async def page(self, version: str) -> None:
        """A page that shows two fields of a version."""
        stored, meant = self.stored[version], self.meant[version]
        text = "<b>{0[name]}</b><i>{0[email]}</i>"
        call = await self.desk.send("GET /card/1")
        shown = await call.answer(200, text.format(stored).encode(), HTML)
        assert unescape(shown.body.decode()) == text.format(meant)

    async def wait(self, span: int) -> None:
        self.desk.clock.advance(span)
        await reap(self.desk.people, WEEK)


async def lived(steps: list[Any]) -> None:
    one = await cms()
    application = Application(one, await one.create(FIRST))
    for name, *more in steps:
        one.clock.advance(1)
        await getattr(application, name)(*more)
    for version in VERSIONS:
        await application.read(version)


@examples(60)
@given(st.lists(STEP, max_size=14))
def test_each_version_is_shown_as_it_is(steps: list[Any]) -> None:
    asyncio.run(lived(steps))
