"""Parameters of a read that its rule does not name."""

import json
from io import StringIO

import pytest

from proxy.telemetry import logs
from tests.support.exchanges import Desk, desk

READ = (
    '{match: GET /p, read: p, query: {email: {field: email}, "f_*": {field: email, split: ","}, tab: {pass: true}}, '
    'response: {each: "$[*]", id: $.id}}'
)


def counted(one: Desk, parameter: str) -> float:
    cell = one.metrics.cell("domicile_unnamed_parameters_total", "app", "GET /p", parameter)
    return cell.value


async def ask(one: Desk, query: str) -> None:
    call = await one.send(f"GET /p?{query}")
    assert call.sent.target.endswith(query.encode()), "it passes as it came"
    await call.answer(200, [])


async def test_what_a_rule_does_not_name_is_counted_by_a_name_that_is_nobodys():
    one, stream = await desk(READ), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for query in ("name=Zorbina&page=2", "name=Bob&sortName=x", "Zorbina", "q1=a&z%C3%A9=1"):
        await ask(one, query)
    assert counted(one, "name") == 2
    assert counted(one, "{word}") == 3
    logs.configure(logs.Style())
    told = [json.loads(line)["parameter"] for line in stream.getvalue().splitlines()]
    assert told == ["name", "sortName", "{word}"], "each once"
    assert b"orbina" not in one.metrics.render() + stream.getvalue().encode()


@pytest.mark.parametrize(
    "query", ["page=2&per_page=3&pageSize=1", "tab=1", "f_x=", "email=", "_=17", ""]
)
async def test_what_is_named_or_harmless_is_not(query):
    one = await desk(READ)
    await ask(one, query)
    assert b"domicile_unnamed_parameters_total{" not in one.metrics.render()
