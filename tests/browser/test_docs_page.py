"""The page at ``/docs`` in a real browser: search, a token, a request that is tried out."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.api.access import BearerAccess
from proxy.auth.clients import Grant
from tests.support.api import Interface, interface
from tests.support.browser import Browser, Page
from tests.support.examples import CONTACT, RECORDS

SHOWN = "document.querySelectorAll('.opblock').length"
PATHS = "[...document.querySelectorAll('.opblock-summary-path')].map((one) => one.dataset.path)"
FAMILIES = "[...document.querySelectorAll('.family')].map((one) => one.innerText)"
READ = "#operations-Records-read_record"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    """A vault with the records of the document, which takes real tokens alone."""
    async with interface(tmp_path, "memory") as found:
        await found.declare("contact", CONTACT)
        for record in RECORDS:
            await found.client("POST", "/api/models/contact", json=record)
        found.services.access = BearerAccess(found.office.service.tokens)
        yield found


async def press(page: Page, text: str, inside: str = "body") -> None:
    """Press the visible button with that text, as soon as it is there."""
    await page.until(f"""(() => {{
        const button = [...document.querySelectorAll("{inside} button")].find(
            (one) => one.innerText.trim() === "{text}" && one.offsetParent);
        button?.click();
        return button;
    }})()""")


async def opened(browser: Browser, here: Interface) -> Page:
    page = await browser.page()
    await page.goto(f"{here.client.address}/docs")
    await page.until(f"{SHOWN} === {len(here.services.operations)}")
    return page


@pytest.mark.slow
async def test_operations_are_found_by_their_words_and_tried_out_with_a_token_which_also_shows_the_schemas(
    browser: Browser | None, here: Interface
) -> None:
    if browser is None:
        return
    made = await here.office.service.clients.create("page", "default", Grant(admin=True))
    page = await opened(browser, here)
    families = await page.evaluate(FAMILIES)
    assert families == ["Native interface", "Administration", "Compatibility families"]
    assert (await page.evaluate(PATHS))[0] == "/api/models/{schema}"
    assert (await page.evaluate(PATHS))[-1].startswith(("/v2/", "/healthcheck"))

    search = "input.operation-filter-input"
    await page.fill(search, "rotate key")
    await page.until(f"{SHOWN} === 1")
    assert await page.evaluate(PATHS) == ["/api/keys/rotate"]
    assert await page.evaluate(FAMILIES) == ["Administration"]
    await page.fill(search, "no such words")
    await page.until("document.body.innerText.includes('No operation has all of these words.')")
    await page.fill(search, "")
    await page.until(f"{SHOWN} === {len(here.services.operations)}")

    models = "document.querySelector('section.models')?.innerText.includes('model.contact')"

    await press(page, "Authorize")
    await page.fill(".auth-container #client_id_clientCredentials", made.client.id)
    await page.fill(".auth-container #client_secret_clientCredentials", made.secret)
    await press(page, "Authorize", ".auth-container")
    await page.until("document.querySelector('.auth-container').innerText.includes('Logout')")
    await press(page, "Close", ".auth-container")
    await page.evaluate("document.querySelector('section.models button').click()")
    await page.until(models)

    await page.evaluate(f"document.querySelector('{READ} .opblock-summary-control').click()")
    await press(page, "Try it out", READ)
    for name, value in (("schema", "contact"), ("record_key", "c-2")):
        field = f"{READ} tr[data-param-name='{name}']"
        if await page.evaluate(f'!document.querySelector("{field} select")'):
            await page.fill(f"{field} input", value)
    await press(page, "Execute", READ)
    answer = f"{READ} .live-responses-table"
    await page.until(f"document.querySelector('{answer}')?.innerText.includes('Björn Ek')")
    assert "200" in await page.text(f"{answer} tbody .response-col_status")
    assert page.problems == []
