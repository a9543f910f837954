import aiohttp

from proxy.demo.store import PEOPLE, plant
from tests.support.browser import Browser, Page

CARDS = "document.querySelectorAll('.card').length"


async def fill(page: Page, **values: str) -> None:
    for name, value in values.items():
        await page.fill(f"#{name}", value)


async def test_someone_is_added_found_edited_and_deleted(browser: Browser, direct: str) -> None:
    page = await browser.page()
    await page.goto(f"{direct}/contacts")
    await page.until("document.querySelector('#list').innerText.includes('No contacts yet')")

    await page.click("#new")
    await fill(
        page, first_name="Åsa", last_name="Berg", email="asa@example.com", birth_date="1990-12-31"
    )
    await fill(
        page,
        phone="+46 70 174 06 05",
        card="4242424242424242",
        street="Storgatan 1",
        city="Lund",
        note="Hi & <b>bye</b>",
    )
    await page.click("#vip")
    await page.click("#new-dialog button[type=submit]")
    await page.until(f"{CARDS} === 1")
    text = await page.text(".card")
    for shown in (
        "Åsa Berg",
        "asa@example.com",
        "1990-12-31",
        "Storgatan 1, Lund",
        "4242424242424242",
        "Hi & <b>bye</b>",
        "VIP",
    ):
        assert shown in text
    assert not await page.evaluate("document.querySelector('#new-dialog').open")

    await page.click(".card .edit")
    await page.until("document.querySelector('#email')?.value === 'asa@example.com'")
    assert await page.evaluate("document.querySelector('#vip').checked")
    assert await page.evaluate("document.querySelector('#birth_date').value") == "1990-12-31"
    await fill(page, last_name="Lind", city="Malmö")
    await page.click("#contact-form button[type=submit]")
    await page.until("document.querySelector('#status').innerText === 'Saved.'")
    assert await page.text("h1") == "Åsa Lind"
    async with aiohttp.ClientSession() as client, client.get(f"{direct}/api/contacts/1") as answer:
        stored = await answer.json()
    assert (stored["last_name"], stored["address"]) == (
        "Lind",
        {"street": "Storgatan 1", "city": "Malmö"},
    )

    await page.click("#delete-form button")
    await page.until("location.pathname === '/contacts' && document.querySelector('.empty')")
    assert page.problems == []


async def test_the_list_finds_by_email_and_deletes_after_asking(
    browser: Browser, direct: str
) -> None:
    await plant(direct)
    page = await browser.page()
    await page.goto(f"{direct}/contacts")
    await page.until(f"{CARDS} === {len(PEOPLE)}")
    assert await page.text("#status") == "3 contacts"
    await page.fill("#wanted", PEOPLE[1]["email"].upper())
    await page.press("Enter", 13)
    await page.until(f"{CARDS} === 1")
    assert PEOPLE[1]["last_name"] in await page.text(".card")
    assert await page.text("#status") == "1 contact with this e-mail"
    # an address of a person would end up in logs
    assert "@" not in await page.evaluate("location.href")

    await page.click(".card .delete")
    await page.until("document.querySelector('#delete-dialog').open")
    assert PEOPLE[1]["first_name"] in await page.text("#delete-dialog")
    await page.press("Escape", 27)
    await page.until("!document.querySelector('#delete-dialog').open")
    await page.click(".card .delete")
    await page.click("#delete-form button[type=submit]")
    await page.until("document.querySelector('#list').innerText.includes('Nobody has this e-mail')")
    await page.click("#all")
    await page.until(f"{CARDS} === {len(PEOPLE) - 1}")
    assert page.problems == []


async def test_a_refused_form_says_which_field_and_keeps_what_was_typed(
    browser: Browser, direct: str
) -> None:
    page = await browser.page()
    await page.goto(f"{direct}/contacts")
    await page.click("#new")
    await fill(page, first_name="Ann", last_name="Berg", card="4242424242424241", phone="unknown")
    await page.click("#new-dialog button[type=submit]")
    await page.until(
        "document.querySelector('#card-fault').innerText.includes('must be a card number')"
    )
    assert "must be a phone number" in await page.text("#phone-fault")
    assert await page.evaluate("document.activeElement.id") == "phone"
    assert (
        await page.evaluate("document.querySelector('#card').getAttribute('aria-invalid')")
        == "true"
    )
    assert await page.evaluate("document.querySelector('#card').value") == "4242424242424241"
    await fill(page, card="4242424242424242", phone="")
    await page.click("#new-dialog button[type=submit]")
    await page.until(f"{CARDS} === 1")
    assert [problem for problem in page.problems if "422" not in problem] == []


async def test_the_list_follows_changes_that_others_make(browser: Browser, direct: str) -> None:
    page = await browser.page()
    await page.goto(f"{direct}/contacts")
    await page.until("!!document.querySelector('.empty')")
    await plant(direct)
    await page.until(f"{CARDS} === {len(PEOPLE)}")
    # the newest comes first
    assert PEOPLE[-1]["first_name"] in await page.text(".card:first-child")


async def test_the_keyboard_alone_is_enough(browser: Browser, direct: str) -> None:
    await plant(direct)
    page = await browser.page()
    await page.goto(f"{direct}/contacts")
    await page.until(f"{CARDS} === {len(PEOPLE)}")
    reached: list[str] = []
    for _ in range(8):
        await page.press("Tab", 9)
        reached.append(
            await page.evaluate(
                "document.activeElement.id || document.activeElement.className || "
                "document.activeElement.tagName"
            )
        )
    assert reached == [
        "skip", "brand", "new", "wanted", "BUTTON", "A", "button edit", "quiet delete",
    ]  # fmt: skip
    await page.evaluate("document.querySelector('#new').focus()")
    await page.press("Enter", 13)
    await page.until("document.querySelector('#new-dialog').open")
    assert await page.evaluate("document.activeElement.id") == "first_name"


async def test_nothing_is_wider_than_a_telephone(browser: Browser, direct: str) -> None:
    await plant(direct)
    long = {
        "first_name": "W" * 120,
        "last_name": "x",
        "email": f"{'y' * 150}@example.com",
        "tags": ["z" * 150],
    }
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{direct}/api/contacts", json=long) as answer,
    ):
        assert answer.status == 201
    page = await browser.page(390, 844, dark=True)
    for path, there in (
        ("/contacts", f"{CARDS} === 4"),
        ("/contacts/4", "document.querySelector('#email').value !== ''"),
    ):
        await page.goto(direct + path)
        await page.until(there)
        assert await page.too_wide() == []
    await page.goto(f"{direct}/contacts")
    await page.click("#new")
    assert await page.too_wide() == []
    await page.evaluate("document.querySelector('#main').style.width = '500px'")
    assert await page.too_wide() != []  # the check itself sees what is too wide
