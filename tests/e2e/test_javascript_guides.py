"""The guides of ``docs/guides`` whose applications are of JavaScript, followed as ``test_guides.py``
follows the others. Node.js comes from a lock of pip, the packages from one of npm.
"""

import json
from pathlib import Path
from typing import Any

from tests.support.browser import Browser, Page
from tests.support.guides import ANN, BO, MARKERS, Followed, fetched, followed, submitted
from tests.support.real.installed import NODE, environment, modules

#: A picture of one point.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

#: Puts that picture into the file field of a page.
CHOOSE = f"""(async () => {{
    const bytes = Uint8Array.from(atob("{PICTURE}"), (one) => one.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], "holiday.png", {{type: "image/png"}}));
    document.querySelector("input[type=file]").files = files.files;
}})()"""


async def written(page: Page, texts: dict[str, str], names: str = "{}") -> None:
    """Type texts into the fields of those names."""
    for name, text in texts.items():
        await page.fill(f"[name='{names.format(name)}']", text)


# ---------------------------------------------------------------------- Express


async def test_express(browser: Browser, tmp_path: Path) -> None:
    node = environment(NODE)
    async with followed("express", tmp_path, node, modules=modules(node)) as guide:
        page = await browser.page()
        await page.goto(f"{guide.proxy}/people")
        assert await page.evaluate("location.pathname") == "/login"
        await written(page, {"user": "editor", "password": "wrong"})
        await submitted(page, "button")
        assert await page.text("[role=alert]") == "That is not right."
        await written(page, {"user": "editor", "password": "correct horse"})
        await submitted(page, "button")
        assert await page.evaluate("location.pathname") == "/people"
        for number, (person, city) in enumerate(((ANN, "Visby"), (BO, "Arboga")), 1):
            await page.goto(f"{guide.proxy}/people/new")
            await written(page, {**person, "city": city})
            await page.evaluate(CHOOSE)
            await submitted(page, "#person button")
            assert await page.evaluate("location.pathname") == f"/people/{number}"
            assert await page.text("h1") == person["name"]
            assert await page.evaluate("document.querySelector('img').naturalWidth") == 1
        await lists_of_express(page, guide)
        await forms_of_express(page, guide)
        assert guide.leaked(*MARKERS) == {}
        expected = ("status of 4", "favicon")
        assert [one for one in page.problems if not any(word in one for word in expected)] == []


async def lists_of_express(page: Page, guide: Followed) -> None:
    """The list, its searches, its orders, the list of a script, the export."""
    rows = "[...document.querySelectorAll('tbody tr')].map((row) => row.innerText.split('\\t'))"
    ann, bo = (
        [one["name"], one["email"], one["phone"], city]
        for one, city in ((ANN, "Visby"), (BO, "Arboga"))
    )
    for query, people in (
        ("", [ann, bo]),
        ("?sort=city", [bo, ann]),
        ("?q=quibble", [ann]),
        ("?q=BART@wexlomere.example", [bo]),
        ("?q=nobody", []),
        ("?q=snick&city=Arboga&sort=city", [bo]),
    ):
        await page.goto(f"{guide.proxy}/people{query}")
        assert await page.evaluate(rows) == people, query
    for order in ("name", "email", "birth_date", "NAME"):
        status, text = await fetched(page, f"/people?sort={order}")
        assert (status, "search_refused" in text) == (422, True), order
    await page.goto(f"{guide.proxy}/people")
    assert await page.evaluate("document.querySelector('tbody a[href^=mailto]').href") == (
        f"mailto:{ANN['email']}"
    )
    await page.fill("[name=q]", "zorb")
    await page.until("document.querySelectorAll('#found li').length === 1")
    assert await page.text("#found") == f"{ANN['name']}, {ANN['birth_date']}, Visby"
    status, text = await fetched(page, "/people.csv")
    lines = [
        ",".join(f'"{cell}"' for cell in (number, *one.values(), city))
        for number, (one, city) in enumerate(((ANN, "Visby"), (BO, "Arboga")), 1)
    ]
    assert text.splitlines() == ["id,name,email,phone,birth_date,note,city", *lines]


async def forms_of_express(page: Page, guide: Followed) -> None:
    """The form of a person, an address that is there already, a session that is over, a delete."""
    await page.goto(f"{guide.proxy}/people/1")
    values = "Object.fromEntries(new FormData(document.querySelector('#person')))"
    assert await page.evaluate(values) == {**ANN, "city": "Visby"}
    await written(page, {"note": "Moved, plöm and all.", "birth_date": "1931-02-28"})
    await submitted(page, "#person button")
    changed = {**ANN, "city": "Visby", "note": "Moved, plöm and all.", "birth_date": "1931-02-28"}
    assert await page.evaluate(values) == changed
    order = {"method": "PATCH", "headers": {"Content-Type": "application/json"}}
    body = {"birth_date": ANN["birth_date"], "phone": "+46 70 918 27 00"}
    answer = await called(page, "/api/people/1", {**order, "body": json.dumps(body)})
    assert {name: answer[name] for name in changed} == {**changed, **body}

    await page.goto(f"{guide.proxy}/people/new")
    await written(page, {**BO, "email": ANN["email"].upper()})
    await submitted(page, "#person button")
    assert await page.text("[role=alert]") == f"{ANN['email'].upper()} is there already."
    assert await page.evaluate(values) | {"photo": ""} == {
        **BO, "email": ANN["email"].upper(), "city": "", "photo": "",
    }  # fmt: skip
    await page.evaluate("fetch('/logout', {method: 'POST'}).then(() => 1)")
    await page.goto(f"{guide.proxy}/people/2")
    await written(page, {"user": "editor", "password": "correct horse"})
    await submitted(page, "button")
    await page.goto(f"{guide.proxy}/people/2")
    await submitted(page, "#delete button")
    assert BO["name"] not in await page.text()
    assert (await fetched(page, "/people/2"))[0] == 404
    assert (await fetched(page, "/metrics"))[0] == 403


async def called(page: Page, path: str, options: dict[str, Any]) -> Any:
    """The document that an answer holds, asked for with the session of the page."""
    return await page.evaluate(
        f"fetch({json.dumps(path)}, {json.dumps(options)}).then((answer) => answer.json())"
    )
