"""The whole demo in a real browser: people on the left, tokens on the right, and rules that change
meanwhile.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.demo.store import PEOPLE
from tests.support.browser import Browser, Page
from tests.support.demo import Demo, demo
from tests.support.files import rewrite
from tests.support.patience import PATIENCE
from tests.support.scraping import FIELD

RIGHT = "document.querySelector('#stored-list')"
CARDS = "document.querySelectorAll('.card').length"
EDITH = {
    "first_name": "Edith", "last_name": "Holmqvist", "email": "edith@example.com",
    "phone": "+46 70 174 06 05", "birth_date": "1990-12-31", "card": "4242424242424242",
    "street": "Storgatan 1", "city": "Lund", "note": "Rings & writes",
}  # fmt: skip
PERSONAL = [name for name in EDITH if name != "city"]


@pytest.fixture
async def running(browser: Browser, tmp_path: Path) -> AsyncIterator[Demo]:
    """A demo with the sample people, and a browser to look at it."""
    async with demo(tmp_path / "clone") as found:
        yield found


async def opened(browser: Browser, running: Demo, width: int = 1280) -> Page:
    """The two-view page, connected, with everybody on both sides."""
    page = await browser.page(width)
    await page.goto(running.page)
    await page.until("document.querySelector('#live').innerText === 'live'")
    await page.until(f"{RIGHT}.querySelectorAll('article').length === {len(PEOPLE)}")
    await page.until(f"{RIGHT}.querySelectorAll('mark').length > {8 * len(PEOPLE)}")
    await page.until(f"{CARDS} === {len(PEOPLE)}", running.proxy)
    return page


async def add(page: Page, running: Demo, **changes: str) -> None:
    """Fill in the form on the left and send it; returns when both sides show one contact more."""
    cards, articles = (
        await page.evaluate(CARDS, running.proxy),
        await page.evaluate(f"{RIGHT}.children.length"),
    )
    await page.click("#new", running.proxy)
    for field, value in {**EDITH, **changes}.items():
        await page.fill(f"#{field}", value, running.proxy)
    await page.click("#new-dialog button[type=submit]", running.proxy)
    await page.until(f"{CARDS} === {cards + 1}", running.proxy)
    await page.until(
        f"{RIGHT}.children.length === {articles + 1} && !!{RIGHT}.children[0].querySelector('mark')"
    )


async def newest(page: Page) -> dict[str, Any]:
    """What the right side shows of the newest contact: label → texts, and which of them are marked
    as tokens.
    """
    script = f"""Object.fromEntries([...{RIGHT}.children[0].querySelectorAll("dt")].map((dt) =>
        [dt.innerText, [...dt.nextElementSibling.children].map((e) => [e.innerText, e.tagName === "MARK"])]))"""
    shown: dict[str, list[list[Any]]] = await page.evaluate(script)
    return {label: tuple(values[0]) for label, values in shown.items()}


async def admin(page: Page, path: str) -> tuple[int, str]:
    address = await page.evaluate("document.querySelector('nav a[href$=\"/readyz\"]').href")
    async with aiohttp.ClientSession() as client:
        async with client.get(address.removesuffix("/readyz") + path, headers=FIELD) as answer:
            return answer.status, await answer.text()


async def version(page: Page) -> str:
    found = re.search(
        r'domicile_rules_info\{version="([0-9a-f]+)"\} 1', (await admin(page, "/metrics"))[1]
    )
    assert found
    return found[1]


async def test_people_stand_on_the_left_and_tokens_on_the_right(
    browser: Browser, running: Demo
) -> None:
    page = await opened(browser, running)
    left, right = await page.text("body", running.proxy), await page.text("#stored-list")
    shown = await page.evaluate(f"[...{RIGHT}.querySelectorAll('dd > *')].map((e) => e.innerText)")
    for person in PEOPLE:
        for field in ("first_name", "last_name", "email", "phone"):
            assert person[field] in left
            # as a whole: a short name may stand in a token by chance
            assert person[field] not in shown
        assert person["address"]["city"] in right
    assert re.fullmatch(r"(\d+) of \d+ values are tokens", await page.text("#share"))

    await add(page, running)
    card = await page.text(".card:first-child", running.proxy)
    shown = await newest(page)
    for field in PERSONAL:
        assert EDITH[field] in card
        assert EDITH[field] not in json.dumps(shown, ensure_ascii=False)
    assert shown["City"] == ("Lund", False)
    assert all(token for label, (_, token) in shown.items() if label not in {"City", "VIP"})
    assert shown["Card"][0].endswith("4242")
    assert page.problems == []


async def test_a_contact_is_edited_and_deleted_by_the_forms_on_the_left(
    browser: Browser, running: Demo
) -> None:
    page = await opened(browser, running)
    await add(page, running)
    before = await newest(page)
    marks = await page.evaluate(f"{RIGHT}.children[0].querySelectorAll('mark').length")
    await page.click(".card:first-child .edit", running.proxy)
    await page.until(
        f"document.querySelector('#email')?.value === '{EDITH['email']}'", running.proxy
    )
    for field in PERSONAL:
        assert (
            await page.evaluate(f"document.querySelector('#{field}').value", running.proxy)
            == EDITH[field]
        )
    await page.fill("#last_name", "Bergström", running.proxy)
    await page.click("#contact-form button[type=submit]", running.proxy)
    await page.until("document.querySelector('#status').innerText === 'Saved.'", running.proxy)
    await page.until(
        f"!{RIGHT}.children[0].innerText.includes({json.dumps(before['Last name'][0])})"
    )
    await page.until(f"{RIGHT}.children[0].querySelectorAll('mark').length === {marks}")
    after = await newest(page)
    assert "Bergström" in await page.text("h1", running.proxy)
    assert after["Last name"][1] is True
    assert after["Last name"][0] != "Bergström"
    assert {**after, "Last name": 0} == {**before, "Last name": 0}, (
        "what did not change keeps its token"
    )

    await page.click("#delete-form button", running.proxy)
    await page.until(f"{CARDS} === {len(PEOPLE)}", running.proxy)
    await page.until(f"{RIGHT}.children.length === {len(PEOPLE)}")
    assert "Edith" not in await page.text(".card", running.proxy)
    assert page.problems == []


async def test_the_running_proxy_follows_the_rule_file_and_ignores_a_broken_one(
    browser: Browser, running: Demo
) -> None:
    page = await opened(browser, running)
    for _ in range(5):
        await add(page, running)
        phone = digits((await newest(page))["Phone"][0])
        assert phone.endswith("05")
        if not phone.endswith("0605"):  # as one token in a hundred does by chance
            break
    else:
        raise AssertionError("more than two digits are kept")

    rules, at_first = running.rules.read_text("utf-8"), await version(page)
    assert rules.count("keep_last: 2") == 1
    rewrite(running.rules, rules.replace("keep_last: 2", "keep_last: 4"))
    await until(lambda: version(page), lambda found: found != at_first)
    await add(page, running)
    assert digits((await newest(page))["Phone"][0]).endswith("0605")
    assert digits(EDITH["phone"]) not in digits((await newest(page))["Phone"][0])

    in_force = await version(page)
    rewrite(running.rules, rules.replace("keep_last: 2", "keep_lost: 2"))
    status, why = await until(lambda: admin(page, "/readyz"), lambda found: "keep_lost" in found[1])
    assert status == 200, why
    await add(page, running, first_name="Astrid")
    assert digits((await newest(page))["Phone"][0]).endswith("0605")
    assert "Astrid" in await page.text(".card:first-child", running.proxy)
    assert "Astrid" not in await page.text("#stored-list")
    assert await version(page) == in_force

    rewrite(running.rules, rules)
    status, _ = await until(
        lambda: admin(page, "/readyz"), lambda found: "keep_lost" not in found[1]
    )
    assert (status, await version(page)) == (200, at_first)
    assert page.problems == []


async def until(look: Any, good: Any) -> Any:
    """Look again and again until it is good."""
    async with asyncio.timeout(PATIENCE):
        while not good(found := await look()):  # noqa: ASYNC110  # the demo is another process
            await asyncio.sleep(0.05)
    return found


def digits(text: str) -> str:
    return re.sub(r"\D", "", text)


async def test_both_sides_fit_a_telephone(browser: Browser, running: Demo) -> None:
    page = await opened(browser, running, 390)
    assert await page.too_wide() == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth", running.proxy)
    await page.goto(f"{running.proxy}/contacts")
    await page.until(f"{CARDS} === {len(PEOPLE)}")
    await page.click("#new")
    for field, value in EDITH.items():
        await page.fill(f"#{field}", value)
    assert await page.too_wide() == []
    await page.click("#new-dialog button[type=submit]")
    await page.until(f"{CARDS} === {len(PEOPLE) + 1}")
    assert EDITH["last_name"] in await page.text(".card:first-child")
    assert await page.too_wide() == []
    assert page.problems == []
