"""Nothing passes unsaid: a real instance before a real application, asked for what its rules do not
name.
"""

import json
from functools import partial

import aiohttp

from proxy.redactor.load import load_text
from tests.support.instance import running
from tests.support.patience import until
from tests.support.rawserver import RawServer, says
from tests.support.rules import fields_searched
from tests.support.scraping import FIELD

RULES = """version: 1
endpoint: {{name: crm, upstream: "{url}"{more}}}
entities: {{note: {{fields: {{text: {{kind: text}}}}}}}}
operations:
  - {{match: "POST /notes", create: note}}
  - {{match: "GET /static/{{path*}}", pass: true}}
"""
PERSON = json.dumps(
    {"name": "Ann Quibblethwaite", "email": "ann.q@example.com", "born": "1987-04-05"}
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(PERSON),
    PERSON,
)


async def test_what_no_rule_names_is_told_once_and_never_a_value(tmp_path):
    """The rule names /notes and the application serves /api/v2/people as well: that is said, once."""
    async with RawServer(says(*[ANSWER] * 20)) as server:
        async with (
            running(tmp_path, RULES.format(url=server.url, more="")) as instance,
            aiohttp.ClientSession() as caller,
        ):
            for number in range(5):
                url = f"{instance.proxy}/api/v2/people/ann.q@example.com/{number}?phone=%2B46701234567"
                async with caller.get(url) as answer:
                    assert await answer.read() == PERSON
            async with caller.get(f"{instance.proxy}/static/app.js") as answer:
                assert answer.status == 200
            await instance.logged("no rule names this request")
            (line,) = instance.events("no rule names this request")
            assert (line["path"], line["method"], line["status"]) == (
                "/api/v2/people/{id}/{id2}",
                "GET",
                200,
            )
            assert (line["request_kinds"], line["answer_kinds"]) == (
                ["email", "phone"],
                ["email", "birth_date"],
            )
            async with caller.get(f"{instance.admin}/metrics", headers=FIELD) as answer:
                metrics = await answer.text()
            counted = (
                'domicile_unmatched_requests_total{endpoint="crm",method="GET",path="/api/v2/people/{id}/{id2}"} '
                "5.0"
            )
            assert counted in metrics
            assert "/static" not in "".join(
                row for row in metrics.splitlines() if "unmatched" in row
            )
            await instance.logged("active endpoint")
            (told,) = instance.events("active endpoint")
            assert (told["endpoint"], told["address"], told["unmatched"]) == (
                "crm",
                server.url,
                "report",
            )
            shown = instance.log.decode() + metrics
            assert not any(
                value in shown for value in ("ann.q", "Quibblethwaite", "1987-04-05", "701234567")
            )


async def test_deny_is_usable_with_rules_that_pass(tmp_path):
    async with RawServer(says(*[ANSWER] * 3)) as server:
        rules = RULES.format(url=server.url, more=", unmatched: deny")
        async with running(tmp_path, rules) as instance, aiohttp.ClientSession() as caller:
            for path, status in (("/static/a.css", 200), ("/static/b/c.js", 200), ("/other", 403)):
                async with caller.get(instance.proxy + path) as answer:
                    assert answer.status == status
            await instance.logged("no rule names this request")
            (told,) = instance.events("no rule names this request")
            assert (told["method"], told["status"]) == ("GET", 403)


async def test_what_no_rule_names_is_known_after_a_restart_and_a_pipeline_can_ask(tmp_path):
    async with RawServer(says(*[ANSWER] * 20)) as server:
        rules = RULES.format(url=server.url, more="")
        async with running(tmp_path, rules) as instance, aiohttp.ClientSession() as caller:
            written = instance.data / "coverage.json"
            for count in (2, 3):
                for _ in range(count):
                    async with caller.get(f"{instance.proxy}/people/ann.q@example.com") as answer:
                        assert await answer.read() == PERSON
                await instance.logged("no rule names this request")
                await instance.stop()
                assert written.stat().st_mode & 0o077 == 0
                if count == 2:
                    await instance.start()
            (path,) = json.loads(written.read_bytes())["unknown"]
            assert (path["method"], path["path"], path["count"]) == ("GET", "/people/{id}", 5)
            assert {"email", "birth_date"} <= set(path["kinds"])
            assert (path["places"]["address"], path["places"]["answer"]) == (
                ["email"],
                ["birth_date", "email"],
            )
            assert b"ann" not in written.read_bytes().lower()
            shown = await instance.command("coverage", status=1)
            assert shown["unknown"][0]["count"] == 5


async def test_ruled_requests_and_parameters_without_a_rule_are_told_over_restarts(tmp_path):
    async with RawServer(says(*[ANSWER] * 40)) as server:
        rules = RULES.format(url=server.url, more="") + (
            '  - {match: "GET /notes", read: note, response: {each: "$.items[*]", id: $.id}}\n'
            '  - {match: "POST /notes/{id}", update: note, request: {form: {text: text}}}\n'
        )
        metrics = ""
        async with running(tmp_path, rules) as instance, aiohttp.ClientSession() as caller:
            for number in range(2):
                query = "?search=zorbina%40example.com&page=1"
                async with caller.get(f"{instance.proxy}/notes{query}") as answer:
                    assert answer.status == 200
                form = {"text": "hello", "sender": "zorbina@example.com"}
                async with caller.post(f"{instance.proxy}/notes/1", data=form) as answer:
                    assert answer.status == 200
                async with caller.get(f"{instance.admin}/metrics", headers=FIELD) as answer:
                    metrics += await answer.text()
                await instance.stop()
                if not number:
                    await instance.start()
            written = (instance.data / "coverage.json").read_bytes()
            shown = await instance.command("coverage", status=1)
    counts = {one["match"]: one["count"] for one in shown["ruled"]}
    assert counts == {"POST /notes": 0, "GET /notes": 2, "POST /notes/{id}": 2}
    told = {(one["place"], one["parameter"]): one for one in shown["parameters"]}
    assert told.keys() == {("query", "search"), ("form", "{word}")}
    assert all(one["suspected"] == ["email"] and one["count"] == 2 for one in told.values())
    assert all(one["since"].startswith("20") for one in (*told.values(), shown["ruled"][1]))
    for text in (written.decode(), metrics, instance.log.decode(), json.dumps(shown)):
        assert not any(word in text.lower() for word in ("zorbina", "example.com", "hello"))


BATCHES = """version: 1
endpoint: {{name: crm, upstream: "{url}"{more}}}
entities: {{note: {{fields: {{text: {{kind: text}}}}}}}}
operations:
  - {{match: "POST /notes", create: note}}
  - {{match: "GET /health", pass: true}}
  - {{match: POST /batch, envelope: {{each: "$[*]", answers: "$[*]"}}}}
"""


async def test_requests_in_an_envelope_are_told_as_if_each_came_alone(tmp_path):
    person = PERSON.decode()
    body = f'[{{"status": 201, "body": {{"id": 1}}}}, {{"status": 200}}, {{"status": 200, "body": {person}}}]'
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body.encode())
    )
    batch = [
        {"method": "POST", "path": "/notes", "body": {"text": "Ann Quibblethwaite"}},
        {"method": "GET", "path": "/health"},
        {"method": "GET", "path": "/people/ann.q@example.com?phone=%2B46701234567"},
    ]
    async with RawServer(says(*[answer] * 20)) as server:
        async with (
            running(tmp_path, BATCHES.format(url=server.url, more="")) as instance,
            aiohttp.ClientSession() as caller,
        ):
            for _ in range(2):
                async with caller.post(f"{instance.proxy}/batch", json=batch) as got:
                    assert (got.status, (await got.json())[2]["body"]) == (200, json.loads(person))
            await instance.logged("no rule names this request")
            (line,) = instance.events("no rule names this request")
            assert (line["method"], line["path"], line["status"]) == ("GET", "/people/{id}", 200)
            assert line["request_kinds"] == ["email", "phone"]
            assert line["answer_kinds"] == ["email", "birth_date"]
            async with caller.get(f"{instance.admin}/metrics", headers=FIELD) as got:
                metrics = await got.text()
            rows = dict(row.rsplit(" ", 1) for row in metrics.splitlines() if row[:1] != "#")
            inner = "domicile_inner_requests_total"
            assert rows[f'{inner}{{endpoint="crm",operation="POST /notes"}}'] == "2.0"
            assert rows[f'{inner}{{endpoint="crm",operation="GET /health"}}'] == "2.0"
            unmatched = (
                'domicile_unmatched_requests_total{endpoint="crm",method="GET",path="/people/{id}"}'
            )
            assert rows[unmatched] == "2.0"
            assert "ann.q" not in instance.log.decode() + metrics


MET = (("POST", "/contacts"), ("GET", "/contacts"), ("GET", "/kunder"))


async def test_what_an_instance_has_met_is_proposed_as_rules(tmp_path):
    """An instance without an operation runs for a while; then a rule file is proposed of that."""
    rules = 'version: 1\nendpoint: {name: crm, upstream: "%s"}\n'

    def met(number: int) -> bool:
        return len(instance.events("no rule names this request")) == number

    async with RawServer(says(*[ANSWER] * 9)) as server:
        async with (
            running(tmp_path, rules % server.url) as instance,
            aiohttp.ClientSession() as caller,
        ):
            for number, (method, path) in enumerate(MET, 1):
                body = PERSON if method == "POST" else None
                url = f"{instance.proxy}{path}?email=ann.q@example.com"
                fields = {"Content-Type": "application/json"}
                async with caller.request(method, url, data=body, headers=fields) as answer:
                    assert await answer.read() == PERSON
                await until(partial(met, number))
            await instance.stop()
            written = instance.data / "coverage.json"
            learned = await instance.command("rules", "learn", str(written))
            proposal = learned["rules"]
    create, read = load_text(proposal).operations
    assert (create.label, str(create.verb)) == ("POST /contacts", "create")
    assert (read.label, fields_searched(read)) == ("GET /contacts", {"email": "email"})
    assert {"name", "email", "born"} <= create.entity.fields.keys()
    reasons = {one["request"]: one["because"] for one in learned["left_out"]}
    assert "name suspected" in reasons["GET /{part}"]  # its word might be somebody's
    assert "Quibble" not in json.dumps(learned) + written.read_text("utf-8")


PATIENTS = """version: 1
endpoint: {{name: crm, upstream: "{url}"}}
entities: {{patient: {{fields: {{name: {{kind: name}}, email: {{kind: email}}}}}}}}
operations:
  - {{match: "POST /api/patients", create: patient}}
  - {{match: "PUT /api/patients/{{id}}", update: patient}}
"""


async def test_members_that_no_rule_names_are_told_once_and_over_restarts(tmp_path):
    """The usual wrapper, without ``object`` in the rule: it passes, and that is said."""
    wrapped = {"patient": {"name": "Eve Zorbina", "email": "leak@example.com"}}
    ordinary = {"name": "Eve Zorbina", "email": "own@example.com", "ward": "7b"}
    more = {**ordinary, "contacts": [{"phone": "+46701234567"}]}
    body = b'{"id": 1}'
    answer = (
        b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    event = "no named field in a create: is `object` missing?"
    metrics = ""
    async with RawServer(says(answer)) as server:
        rules = PATIENTS.format(url=server.url)
        async with running(tmp_path, rules) as instance, aiohttp.ClientSession() as caller:

            async def send(method: str, path: str, document: object) -> None:
                async with caller.request(method, instance.proxy + path, json=document) as got:
                    assert got.status == 201

            await send("POST", "/api/patients", ordinary)
            shown = await instance.command("coverage", "--strict")
            assert shown["parameters"] == []
            for document in (wrapped, wrapped, more):
                await send("POST", "/api/patients", document)
            await send("PUT", "/api/patients/1", more)
            await instance.logged(event)
            async with caller.get(f"{instance.admin}/metrics", headers=FIELD) as got:
                metrics = await got.text()
            await instance.stop()
            (line,) = instance.events(event)
            assert line["operation"] == "POST /api/patients"
            lines = [one for one in map(json.loads, instance.log.splitlines()) if "place" in one]
            assert [(one["operation"], one["parameter"]) for one in lines] == [
                ("POST /api/patients", "$.patient.email"),
                ("POST /api/patients", "$.contacts[*].phone"),
                ("PUT /api/patients/{id}", "$.contacts[*].phone"),
            ]
            await instance.start()
            await send("POST", "/api/patients", wrapped)
            await instance.stop()
            written = (instance.data / "coverage.json").read_text("utf-8")
            shown = await instance.command("coverage", "--strict", status=1)
            assert await instance.command("coverage", status=1) == shown
            log = instance.log.decode()
    told = {(one["match"], one["parameter"]): one for one in shown["parameters"]}
    mail = told["POST /api/patients", "$.patient.email"]
    assert len(told) == 3
    assert (mail["place"], mail["suspected"], mail["count"]) == ("body", ["email"], 3)
    assert mail["since"].startswith("20")
    assert 'parameter="$.patient.email",place="body"} 2.0' in metrics
    for text in (written, metrics, log, json.dumps(shown)):
        assert not any(word in text for word in ("Zorbina", "@example.com", "701234567"))


PLACES = """version: 1
endpoint: {{name: crm, upstream: "{url}"}}
entities: {{note: {{fields: {{text: {{kind: text}}}}}}}}
operations:
  - {{match: POST /notes, create: note, request: {{values: {{$.city: {{pass: true}}}}}}}}
  - {{match: "GET /notes/{{id}}", read: note}}
"""


async def test_places_that_pass_and_values_in_paths_are_told_apart(tmp_path):
    async with RawServer(says(*[ANSWER] * 10)) as server:
        rules = PLACES.format(url=server.url)
        async with running(tmp_path, rules) as instance, aiohttp.ClientSession() as caller:
            note = {"text": "Zorbina", "city": "Zorbina"}
            async with caller.post(f"{instance.proxy}/notes", json=note) as answer:
                assert answer.status == 200
            async with caller.post(f"{instance.proxy}/notes?text=Zorbina", json=note) as answer:
                assert (answer.status, (await answer.json())["code"]) == (422, "value_elsewhere")
            (body,) = [one.body for one in server.requests]
            async with caller.get(f"{instance.proxy}/notes/ivan@example.org") as answer:
                assert answer.status == 200
            await instance.stop()
            shown = await instance.command("coverage", status=1)
    assert body.count(b"Zorbina") == 1, "the city alone"
    (passed,) = shown["passed"]
    assert (passed["place"], passed["parameter"], passed["count"]) == ("body", "$.city", 2)
    (told,) = shown["parameters"]
    assert (told["place"], told["parameter"], told["suspected"]) == ("path", "{id}", ["email"])


async def test_a_path_with_a_hidden_word_leaves_the_list_once_a_rule_names_it(tmp_path):
    async with RawServer(says(*[ANSWER] * 9)) as server:
        rules = RULES.format(url=server.url, more="")
        async with running(tmp_path, rules) as instance, aiohttp.ClientSession() as caller:

            async def ask() -> None:
                async with caller.get(f"{instance.proxy}/kunder/17") as answer:
                    await answer.read()

            def listed() -> list[str]:
                written = json.loads((instance.data / "coverage.json").read_bytes())
                return [one["path"] for one in written["unknown"]]

            await ask()
            await instance.logged("no rule names this request")
            await instance.stop()
            assert listed() == ["/{word}/{id}"]
            (instance.rules / "rules.yaml").write_text(
                rules + '  - {match: "GET /kunder/{id}", read: note}\n'
            )
            (shown,) = (await instance.command("coverage", status=1))["unknown"]
            assert shown["perhaps"] == "GET /kunder/{id}"
            await instance.start()
            await ask()
            await instance.stop()
            assert listed() == []
            shown = await instance.command("coverage")
            assert (shown["ok"], shown["unknown"], shown["ids"]) == (True, [], 1)
