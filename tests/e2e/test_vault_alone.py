"""An instance without rules serves the vault alone, and can be checked while it runs."""

import json
from pathlib import Path

import aiohttp

from tests.support.instance import Instance
from tests.support.lives import command
from tests.support.people import rules


async def run(instance: Instance, *words: str) -> tuple[int, str]:
    status, said, complained = await command(instance.folder, instance.settings(), *words)
    return status, (said + complained).decode()


async def test_without_rules_the_vault_serves_and_the_proxy_says_why_it_does_not(tmp_path: Path):
    instance = Instance(tmp_path)
    instance.rules.mkdir()
    await instance.start()
    try:
        async with aiohttp.ClientSession() as caller:
            async with caller.get(instance.proxy + "/anything") as answer:
                assert (answer.status, "has no rules" in (await answer.json())["detail"]) == (
                    404,
                    True,
                )
            async with caller.get(instance.vault + "/oauth2/jwks") as answer:
                assert answer.status == 200
            async with caller.get(instance.admin + "/readyz") as answer:
                assert (answer.status, (await answer.json())["checks"]["rules"]) == (200, "ok")
            await instance.logged(
                "no rules: the proxy serves no application, the vault's own interface alone is "
                "in use"
            )
            (instance.rules / "people.yaml").write_text(rules("http://127.0.0.1:9"))
            await instance.logged("rules are active")
            async with caller.get(instance.proxy + "/people/1") as answer:
                assert answer.status == 502
            (instance.rules / "people.yaml").unlink()  # rules that vanish are a fault, not a wish
            await instance.logged("rules rejected; previous rules stay active")
            async with caller.get(instance.proxy + "/people/1") as answer:
                assert answer.status == 502
    finally:
        await instance.kill()


async def test_check_works_beside_a_running_instance_and_says_what_it_left_out(tmp_path: Path):
    instance = Instance(tmp_path)
    instance.rules.mkdir()
    (instance.rules / "people.yaml").write_text(rules("http://127.0.0.1:9"))
    await instance.start()
    try:
        status, shown = await run(instance, "check")
        assert (status, "in use by a running instance" in shown) == (0, True), shown
        instance.environment["DOMICILE__COUNTRY"] = "de"
        status, shown = await run(instance, "check", "--json")
        assert (status, json.loads(shown)["faults"]["store"]["details"][0]["source"]) == (
            1,
            "country",
        )
        async with (
            aiohttp.ClientSession() as caller,
            caller.get(instance.admin + "/readyz") as answer,
        ):
            assert answer.status == 200
    finally:
        await instance.kill()


async def test_a_folder_that_the_settings_name_and_that_is_not_there_is_a_fault(tmp_path: Path):
    instance = Instance(tmp_path, environment={"DOMICILE__RULES": str(tmp_path / "elsewhere")})
    status, shown = await run(instance, "serve")
    assert (status, "cannot be read" in shown) == (1, True), shown
