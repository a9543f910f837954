"""The console in a real browser: coverage, a draft with a fault, its tests, a comparison, a request
explained.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.application import Application
from tests.support.browser import Browser, Page
from tests.support.instance import Instance, running
from tests.support.people import ANN, rules
from tests.support.serving import serving

TEST = """\
tests:
  - name: the application sees no name
    call: {match: POST /people, json: {name: Ann}}
    app_sees: {without: [Ann]}
    app_answers: {status: 201, json: {id: 1, name: "{sent $.name}"}}
    caller_sees: {status: 201, json: {id: 1, name: Ann}}
"""
RESULT = "document.querySelector('#result').innerText"


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[Instance]:
    """An instance that has served a ruled request and one that no rule names."""
    async with (
        serving(Application().app()) as upstream,
        running(tmp_path, rules(upstream)) as made,
        aiohttp.ClientSession(made.proxy) as caller,
    ):
        for path in ("/people", "/orders"):
            async with caller.post(path, json=ANN) as answer:
                assert answer.status < 300
        yield made


async def draft(page: Page, change: str) -> None:
    """Change the text of the editor by an expression over ``text``."""
    await page.evaluate(
        f"""(() => {{
            const area = document.getElementById("text"), text = area.value;
            area.value = {change};
            area.dispatchEvent(new Event("input"));
        }})()"""
    )


async def test_rules_are_seen_checked_tested_compared_and_explained(
    browser: Browser | None, instance: Instance, tmp_path: Path
) -> None:
    if browser is None:
        return
    page = await browser.page()
    await page.goto(f"{instance.admin}/console")
    await page.until("document.querySelectorAll('#covered tr').length > 10")
    covered = await page.text("#covered")
    assert "/orders" in covered or "/{word}" in covered
    assert "email" in covered
    assert str(ANN["email"]) not in covered

    await page.click("#covered button")
    await page.until("document.getElementById('proposal').innerText.includes('create: order')")
    assert "A first rule for POST /orders" in await page.text("#suggestion")
    assert str(ANN["email"]) not in await page.text("#suggestion")
    await page.click("#take")
    await page.until("/Copied|Selected/.test(document.getElementById('take').innerText)")
    await page.click("#close")
    assert await page.evaluate("document.getElementById('suggestion').hidden") is True

    await page.click("[data-tab=rules]")
    await page.until("document.getElementById('text').value.includes('person:')")
    await draft(page, "text.replace('kind: email', 'kind: mail')")
    await page.click("[data-ask=check]")
    await page.until(f"{RESULT}.includes('1 fault')")
    assert "rules.yaml:7:" in await page.text("#result")
    await page.click("#result a")
    selected = await page.evaluate(
        "document.getElementById('text').value.slice(...['selectionStart', 'selectionEnd']"
        ".map((end) => document.getElementById('text')[end]))"
    )
    assert "kind: mail" in str(selected)

    await draft(page, f"text.replace('kind: mail', 'kind: email') + {TEST!r}")
    await page.click("[data-ask=test]")
    await page.until(f"{RESULT}.includes('1 of 1 test passed.')")

    await draft(page, r"text.replace(/ +street:.*\n/, '')")
    await page.click("[data-ask=diff]")
    await page.until(f"{RESULT}.includes('lose protection')")
    assert "street" in await page.text("#result")

    await page.click("[data-tab=request]")
    await page.fill("#path", "/people/17")
    await page.click("#explain button")
    await page.until("document.getElementById('explained').innerText.includes('GET /people/{id}')")
    assert page.problems == []
    assert (instance.rules / "rules.yaml").read_text().count("kind: email") == 1


async def test_it_fits_a_telephone_and_the_dark(
    browser: Browser | None, instance: Instance
) -> None:
    if browser is None:
        return
    page = await browser.page(width=375, height=800, dark=True)
    await page.goto(f"{instance.admin}/console")
    await page.until("document.querySelectorAll('#covered tr').length > 10")
    assert await page.too_wide() == []
    await page.click("#covered button")
    await page.until("document.getElementById('proposal').innerText.includes('upstream')")
    assert await page.too_wide() == []
    for tab in ("rules", "request"):
        await page.click(f"[data-tab={tab}]")
        assert await page.too_wide() == []
    assert page.problems == []
