import json
from typing import Any
from urllib.parse import urlencode

import yaml

from proxy.redactor.load import load_text
from proxy.redactor.tools.learning import learn
from proxy.redactor.tools.lessons import UNKNOWN_UPSTREAM
from proxy.redactor.tools.proposal import propose, propose_from
from tests.support.table import table

ANN: dict[str, Any] = {
    "first_name": "Zorbina", "email": "zorbina@wexlomere.example", "birth_date": "1931-02-27",
    "personnummer": "19870405-0007", "iban": "SE3550000000054910000003", "vip": True,
    "address": {"street": "Flumpergatan 7", "city": "Visby"},
}  # fmt: skip
#: What no proposal may say.
VALUES = ("zorbina", "wexlomere", "1931", "19870405", "SE355", "Flumper", "Visby", "Ann")


def entry(method: str, path: str, answer: Any = None, body: Any = None, **more: Any) -> Any:
    request: dict[str, Any] = {"method": method, "url": f"http://crm.local:3000{path}"}
    if body is not None:
        request["postData"] = {"mimeType": "application/json", "text": json.dumps(body)}
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return {"request": {**request, **more}, "response": {"status": 200, "content": {"text": text}}}


def proposal(*entries: Any, words: tuple[str, ...] = ()) -> str:
    content = json.dumps({"log": {"entries": entries}}).encode()
    text = propose(learn(content, words), "crm").text
    load_text(text)
    assert not [value for value in VALUES if value.lower() in text.lower()]
    return text


def test_recorded_traffic_becomes_rules_without_values():
    one = {**ANN, "id": 17}
    form = {"postData": {"mimeType": "application/x-www-form-urlencoded", "text": "email=zorbina%40wexlomere.example"}}  # fmt: skip
    text = proposal(
        entry("POST", "/api/contacts", one, ANN),
        entry("GET", "/api/contacts?email=zorbina%40wexlomere.example", {"items": [one, one]}),
        entry("GET", "/api/contacts/17", one),
        entry("PATCH", "/api/contacts/17", {}, **form),
        entry("DELETE", "/api/contacts/17"),
        entry("GET", "/static/app.css", "p {}"),
    )
    rules = yaml.safe_load(text)
    fields = rules["entities"]["contact"]["fields"]
    assert {name: one["kind"] for name, one in fields.items()} == {
        "first_name": "name", "email": "email", "birth_date": "date", "iban": "iban",
        "personnummer": "national_id", "address_street": "text",
    }  # fmt: skip
    assert fields["address_street"]["at"] == "$.address.street"
    assert rules["endpoint"] == {"name": "crm", "upstream": "http://crm.local:3000"}
    create, listed, read, update, delete = rules["operations"]
    assert create["create"] == read["read"] == update["update"] == delete["delete"] == "contact"
    assert listed["query"] == {"email": {"field": "email"}}
    assert listed["response"] == {"each": "$.items[*]", "id": "$.id"}
    assert update["request"] == {"form": {"email": "email"}}
    assert "email 5" in text
    assert '# - {match: "GET /static/{part}.css", pass: true}' in text


def page(method: str, path: str, text: str, media: str = "text/html; charset=utf-8") -> Any:
    """A request that is answered by a page or an export."""
    one = entry(method, path, text)
    one["response"]["content"]["mimeType"] = media
    return one


def submitted(path: str, leads: str, fields: dict[str, str], *, files: bool = False) -> Any:
    """A form that is answered by a redirect, as developer tools record it."""
    media, text = "application/x-www-form-urlencoded", urlencode(fields)
    if files:
        media = "multipart/form-data; boundary=xy"
        parts = [
            f'Content-Disposition: form-data; name="{one}"\r\n\r\n{value}\r\n'
            for one, value in fields.items()
        ]
        parts.append(
            'Content-Disposition: form-data; name="photo"; filename="zorbina.png"\r\nContent-Type: image/png\r\n\r\nx\r\n'
        )
        text = "".join(f"--xy\r\n{one}" for one in parts) + "--xy--\r\n"
    one = entry("POST", path, "", postData={"mimeType": media, "text": text})
    redirect = {"status": 302, "headers": [{"name": "Location", "value": leads}]}
    one["response"] |= redirect
    return one


def test_a_step_in_a_path_is_no_id_where_its_redirect_leads_to_another_record():
    typed = {"email": ANN["email"], "born": "1931-02-27"}
    text = proposal(
        submitted("/wizard/3", "/users/11", typed), submitted("/wizard/3", "/users/12", typed)
    )
    (rule,) = yaml.safe_load(text)["operations"]
    assert rule.pop("match") == "POST /wizard/{id}"
    assert rule.pop("create") == "wizard"
    assert rule == {
        "request": {"form": {"email": "email", "born": "born"}},
        "response": {"id": "header Location /users/{id}", "success": [302]},
    }


def test_people_below_a_record_are_not_changed_by_the_id_of_its_path():
    ann = {"id": 7, "name": "Zorbina Wexlomere", "email": "zorbina@wexlomere.example"}
    for member in (ann, [ann, {**ann, "id": 8}]):
        flat = {"id": 1, "rooms": 3, "contact": member}
        text = proposal(
            entry("POST", "/api/flats", flat, {"rooms": 3, "contact": member}),
            entry("GET", "/api/flats/1", flat),
            entry("PATCH", "/api/flats/1", flat, {"contact": member}),
            entry("DELETE", "/api/flats/1"),
            words=("flats", "rooms", "contact"),
        )
        read = {one["match"]: one for one in yaml.safe_load(text)["operations"]}
        assert sorted(read) == ["GET /api/flats/{id}", "POST /api/flats"]
        assert "id" not in read["GET /api/flats/{id}"]
        reason = "the id of the path is another one's"
        assert [one.split(":")[0] for one in text.splitlines() if reason in one] == [
            *["  # not proposed"] * 2,
        ]
        assert [one for one in text.splitlines() if "# - match" in one and "PATCH" in one]
    alone = {"data": [ann]}
    text = proposal(
        entry("GET", "/api/flats/7", alone), entry("DELETE", "/api/flats/7"), words=("flats",)
    )
    assert {one["id"] for one in yaml.safe_load(text)["operations"]} == {"path id"}


def test_a_form_below_a_record_may_add_something_as_its_rule_says():
    typed = {"email": ANN["email"]}
    asks = "# does each of these add something"
    assert asks in proposal(submitted("/people/3/update", "/people/3", typed))
    assert asks not in proposal(submitted("/people/3", "/people/3", typed))
    text = proposal(submitted("/people/3/comments", "/people/3", typed))
    (rule,) = yaml.safe_load(text)["operations"]
    assert rule["create"] == "comment"
    assert rule["response"] == {"id": "$.id", "success": [302]}, (
        "the id in Location is that of the person"
    )


def test_a_site_of_forms_and_pages_becomes_rules():
    typed = {"first_name": "Zorbina", "email": ANN["email"], "born": "1931-02-27", "color": "red"}
    shown = f"<h1>{ANN['email']}</h1>"
    text = proposal(
        submitted("/users/new", "http://crm.local:3000/users/17?saved=1", typed, files=True),
        submitted("/users/17/edit", "/users/17", typed),
        submitted("/users/19/delete", "/users", {}),
        submitted("/contacts", "/contacts/17", {"contact[email]": ANN["email"], "contact[address][0][street]": "Flumpergatan 7"}),
        submitted("/users/17/message", "/users/17", {"text": "plays chess"}),
        page("GET", "/users", shown), page("GET", "/users/17", shown), page("GET", "/users/17/edit", shown),
        page("GET", "/users/new", "<form>"),
        page("GET", "/contacts", f"id,email\n17,{ANN['email']}\n", "text/csv"),
    )  # fmt: skip
    rules = {one.pop("match"): one for one in yaml.safe_load(text)["operations"]}
    names = {"first_name": "first_name", "email": "email", "born": "born"}
    photo = {"photo": {"filename": "photo"}}
    success = {"success": [302]}
    assert rules == {
        "POST /users/new": {
            "create": "user", "request": {"multipart": {**names, **photo}},
            "response": {"id": "header Location /users/{id}", **success},
        },
        "POST /users/{id}/edit": {
            "update": "user", "id": "path id", "request": {"form": names}, "response": success,
        },
        "POST /users/{id}/delete": {"delete": "user", "id": "path id", "response": success},
        "GET /users": {"read": "user", "response": {"restore": "html"}},
        "GET /users/{id}": {"read": "user", "id": "path id", "response": {"restore": "html"}},
        "GET /users/{id}/edit": {"read": "user", "id": "path id", "response": {"restore": "html"}},
        "POST /contacts": {
            "create": "contact",
            "request": {"form": {"contact[email]": "email", "contact[address][*][street]": "street"}},
            "response": {"id": "header Location /contacts/{id}", **success},
        },
        "GET /contacts": {
            "read": "contact",
            "response": {"restore": "csv", "columns": {"email": "email"}, "id": "column id"},
        },
    }  # fmt: skip
    assert '# - {match: "GET /users/new", pass: true}    # nothing suspected, met 1 x' in text
    assert (
        "nothing suspected, but texts are written or have names that are not told: whose?, met 1 x"
        in text
    )


def test_a_delete_beside_a_bin_keeps_the_values_until_the_purge():
    typed = {"email": ANN["email"]}
    rules = yaml.safe_load(
        proposal(
            submitted("/patients/new", "/patients/17", typed),
            submitted("/patients/17/delete", "/patients", {}),
            page("GET", "/trash", f"<p>{ANN['email']}</p>"),
            submitted("/trash/17/restore", "/patients/17", {}),
            submitted("/trash/18/purge", "/trash", {}),
        )
    )
    redirected = {"response": {"success": [302]}}
    assert {one.pop("match"): one for one in rules["operations"][1:]} == {
        "POST /patients/{id}/delete": {
            "delete": "patient", "id": "path id", "keep": "until_deleted", **redirected,
        },
        "GET /trash": {"read": "patient", "response": {"restore": "html"}},
        "POST /trash/{id}/restore": {"update": "patient", "id": "path id", **redirected},
        "POST /trash/{id}/purge": {"delete": "patient", "id": "path id", **redirected},
    }  # fmt: skip


@table(
    "met",
    [
        entry("POST", "/contacts/17/restore", {"id": 17}),
        entry("GET", "/contacts/archive", {"items": [{**ANN, "id": 17}]}),
        entry("GET", "/contacts/17", {**ANN, "id": 17}),
        entry("POST", "/kunst/17/restore", {"id": 17}),  # a word that is not told
    ],
)
def test_a_delete_whose_record_is_met_again_keeps_the_values(met):
    created = entry("POST", "/contacts", {"id": 17}, ANN)
    text = proposal(created, entry("DELETE", "/contacts/17"), met)
    kept = [one.get("keep") for one in yaml.safe_load(text)["operations"] if "delete" in one]
    assert kept == ["7y"]
    assert "Name the delete that is for good, then say until_deleted" in text
    assert not [one for one in text.splitlines() if "restore" in one and "pass: true" in one]
    without = proposal(created, met, entry("DELETE", "/contacts/18"), entry("DELETE", "/notes/1"))
    assert ("keep: 7y" in without) == (
        met["request"]["method"] == "POST" or "archive" in met["request"]["url"]
    )
    assert "only marks the record, as for a bin" in proposal(
        created, entry("DELETE", "/contacts/17")
    )


def test_a_bin_of_several_collections_keeps_the_values_of_each():
    text = proposal(
        entry("POST", "/contacts", {"id": 17}, ANN), entry("DELETE", "/contacts/17"),
        entry("POST", "/users", {"id": 3}, ANN), entry("DELETE", "/users/3"),
        entry("POST", "/trash/3/restore"), entry("DELETE", "/trash/3"),
    )  # fmt: skip
    assert text.count("    keep: 7y") == 2
    assert "left out: POST /trash/{id}/restore, because it gives a record back: say update" in text


def test_a_sign_in_is_a_search_by_the_address_and_makes_no_record():
    address = {"email": ANN["email"]}
    text = proposal(
        entry("POST", "/api/users", {"id": 17}, ANN),
        entry("POST", "/api/login", {"token": "x"}, {**address, "password": "pw"}),
        submitted("/reset", "/login", address),
    )
    rules = yaml.safe_load(text)
    assert list(rules["entities"]) == ["user"]
    assert "as of staff, are not found then: pass: true" in text
    found = {
        one["match"]: (one["read"], one["request"]) for one in rules["operations"] if "read" in one
    }
    assert found == {
        "POST /api/login": ("user", {"fields": {"email": "$.email"}}),
        "POST /reset": ("user", {"form": {"email": "email"}}),
    }
    alone = proposal(entry("POST", "/api/login", {"token": "x"}, address))
    assert "left out: POST /api/login, because it signs in or resets by an e-mail address" in alone


def test_a_date_that_a_form_asks_for_has_a_token_that_is_a_date():
    typed = {"first_name": "Zorbina", "birth_date": "1931-02-27"}
    form = f"<input value='{ANN['email']}' name=mail><input name='birth_date' type=\"date\">"
    text = proposal(
        page("GET", "/users/17/edit", form),
        submitted("/users", "/users/17", typed),
        page("GET", "/users", "<p>Zorbina</p>"),
    )
    rules = yaml.safe_load(text)
    assert rules["entities"]["user"]["fields"]["birth_date"]["token"] == {"shape": "date"}
    shown = {one["match"]: one["response"] for one in rules["operations"] if "read" in one}
    assert shown == {
        "GET /users": {"restore": "html", "only": ["first_name"]},
        "GET /users/{id}/edit": {"restore": "html", "form": {"birth_date": "birth_date"}},
    }


def test_what_does_not_load_is_told_once_in_its_place_below_two_collections_of_a_name():
    typed = {"email": ANN["email"]}
    text = proposal(
        submitted("/users", "/users/17", typed),
        submitted("/api/users", "/api/users/17", typed),
        submitted("/people", "/people", typed),
    )
    assert text.count("this create does not say where its answer carries the id") == 1
    assert '\n  # - match: "POST /people"' in text
    assert [one["match"] for one in yaml.safe_load(text)["operations"]] == [
        "POST /api/users",
        "POST /users",
    ]


def test_two_collections_of_one_name_are_two_kinds_until_somebody_says_otherwise():
    text = proposal(
        submitted("/users", "/users/17", {"email": ANN["email"]}),
        submitted("/api/users", "/api/users/17", {"email": ANN["email"]}),
    )
    assert "Then write user in place of user_2" in text
    assert list(yaml.safe_load(text)["entities"]) == ["user", "user_2"]
    assert "in place of" not in proposal(submitted("/users", "/users/17", {"email": ANN["email"]}))


def test_words_that_may_be_somebodys_are_left_out_until_somebody_says_otherwise():
    entries = (
        entry("GET", "/kunder/Zorbina", {"id": 1, "email": ANN["email"], "Zorbina": ANN["email"]}),
        entry(
            "GET", "/kunder?Ann=zorbina%40wexlomere.example", [{"id": 1, "email": "a@b.example"}]
        ),
    )
    text = proposal(*entries)
    assert "operations:" not in text.replace("# operations:", "")
    assert "left out: GET /{part}, because email suspected; say with --word" in text
    assert "left out: GET /{part}, 1 member of the query, because the name might be" in text
    rules = yaml.safe_load(proposal(*entries, words=("kunder",)))
    assert [one["match"] for one in rules["operations"]] == ["GET /kunder"]


def test_pages_and_texts_with_values_are_told_of():
    text = proposal(
        entry("GET", "/contacts/17/edit", "<p>zorbina@wexlomere.example</p>"),
        entry(
            "POST", "/notes", {"id": 1}, {"text": "write to zorbina@wexlomere.example " + "x" * 60}
        ),
    )
    assert "GET /contacts/{id}/edit, because email suspected; a page" in text
    assert yaml.safe_load(text)["entities"]["note"]["fields"]["text"]["kind"] == "text"


def test_a_name_in_a_form_beside_something_of_a_person_is_a_field():
    posted = {
        "mimeType": "application/x-www-form-urlencoded",
        "text": "name=Flumper&email=zorbina%40wexlomere.example&city=Visby",
    }
    text = proposal(entry("PUT", "/contacts/17", {"id": 1}, postData=posted))
    rule = yaml.safe_load(text)["operations"][0]
    assert rule["request"]["form"] == {"name": "name", "email": "email"}


def test_a_member_of_a_form_with_a_hyphen_is_a_field_and_keeps_its_place():
    sent = {"registration-email": "zorbina@wexlomere.example", "csrf": "1"}
    text = proposal(submitted("/accounts", "/accounts/17", sent), page("GET", "/accounts/17", "-"))
    rules = yaml.safe_load(text)
    assert [*rules["entities"]["account"]["fields"]] == ["registration_email"]
    created = rules["operations"][0]
    assert created["request"] == {"form": {"registration-email": "registration_email"}}
    assert created["response"]["id"] == "header Location /accounts/{id}"


def test_the_address_of_the_proxy_itself_is_no_upstream():
    content = json.dumps({"log": {"entries": [entry("GET", "/contacts/1", {**ANN, "id": 1})]}})
    of_proxy = propose_from([content.encode()], (), "crm", frozenset({"crm.local:3000"}))
    assert yaml.safe_load(of_proxy.text)["endpoint"]["upstream"] == UNKNOWN_UPSTREAM
    assert any("the proxy itself" in one.because for one in of_proxy.left_out)
    of_other = propose_from([content.encode()], (), "crm", frozenset({"crm.local:8080"}))
    assert yaml.safe_load(of_other.text)["endpoint"]["upstream"] == "http://crm.local:3000"


def test_no_upload_is_called_free_of_values():
    form = "multipart/form-data; boundary=b"
    rows = '--b\r\nContent-Disposition: form-data; name="file"; filename="m.csv"\r\n\r\nE-mail\r\n'
    held = {"mimeType": form, "text": f"{rows}zorbina@wexlomere.example\r\n--b--\r\n"}
    text = proposal(
        entry("POST", "/contacts", {"id": 1}, {"email": ANN["email"]}),
        entry("POST", "/contacts/import", "", postData=held),
        entry("POST", "/contacts/17/photo", "", postData={"mimeType": form}),
        # as browsers record an upload: its body is left out
        entry(
            "POST", "/contacts/17/documents", "", headers=[{"name": "Content-Type", "value": form}]
        ),
        entry("PUT", "/contacts/17/note", "", headers=[{"name": "Content-Length", "value": "218"}]),
    )
    assert "POST /contacts/import, because email suspected; a page, an export, an upload" in text
    for path in ("photo", "documents"):
        because = "because an upload; name its texts under request: multipart"
        assert f"POST /contacts/{{id}}/{path}, {because}" in text
    assert "PUT /contacts/{id}/note, because nothing suspected, but texts are written" in text
    assert "pass: true" not in text


@table(
    ("forms", "entity"),
    [
        ([("/people", "/people/17"), ("/people/17", "/")], "people"),
        ([("/people", "/"), ("/orders", "/orders/17")], "people"),
        ([("/people", "/people/17"), ("/orders", "/orders/17")], None),
        ([("/people", "/"), ("/orders", "/")], None),
        ([("/", "/17"), ("/people", "/people/17")], "record"),
    ],
)
def test_a_list_at_the_first_page_is_that_of_the_forms_which_lead_to_it(forms, entity):
    typed = {"email": ANN["email"]}
    first = page("GET", "/", f"<h1>{ANN['email']}</h1>")
    text = proposal(first, *(submitted(path, leads, typed) for path, leads in forms))
    rules = {one["match"]: one for one in yaml.safe_load(text).get("operations", ())}
    assert rules.get("GET /", {}).get("read") == entity
    assert ("# left out: GET /, because email suspected" in text) is (entity is None)


def test_names_of_files_are_proposed_as_fields_and_tables_are_not():
    form = "multipart/form-data; boundary=b"
    params = [{"name": "title", "value": "x"}, {"name": "photo", "fileName": "zorbina.pdf"}]
    text = proposal(
        entry("POST", "/documents", {"id": 1}, postData={"mimeType": form, "params": params}),
        entry("POST", "/orders", {"id": 1}, postData={
            "mimeType": form, "params": [{"name": "file", "fileName": "zorbina.XLSX"}]}),
    )  # fmt: skip
    said = yaml.safe_load(text)
    assert said["entities"] == {
        "document": {"fields": {"photo": {"kind": "text", "token": "filename"}}}
    }
    (rule,) = said["operations"]
    assert rule["request"] == {"multipart": {"photo": {"filename": "photo"}}}
    assert "POST /orders, because an upload; name its texts" in text
    assert "zorbina" not in text


def test_what_does_not_load_is_a_comment_with_the_reason():
    text = proposal(
        entry("POST", "/contacts", {"id": 1}, {"email": ANN["email"]}),
        entry("GET", "/contacts/{id}/photo/{id}", {"email": ANN["email"], "id": 1}),
        entry("GET", "/contacts/7/photo/8", {"email": ANN["email"], "id": 1}),
    )
    assert yaml.safe_load(text)["operations"]


def test_names_that_no_field_can_have_get_others():
    members = {"_email": ANN["email"], "email": ANN["email"], "2nd-email": ANN["email"]}
    text = proposal(entry("POST", "/_api", {"id": 1}, members))
    (fields,) = [one["fields"] for one in yaml.safe_load(text)["entities"].values()]
    assert {*fields} >= {"email", "field_email"}
    load_text(text)


@table("url", ["data:text/plain,x", "blob:https://x/y", "chrome-extension://a", ""])
def test_addresses_of_the_browser_itself_are_left_out(url):
    one = entry("POST", "/contacts", {"id": 1}, {"email": ANN["email"]})
    other = json.loads(json.dumps(one))
    other["request"]["url"] = url
    assert proposal(other, one, other) == proposal(one)


def test_sentences_that_repeat_values_of_ruled_places_are_not_let_pass():
    one = {**ANN, "id": 17}
    told = "Zorbina was added by somebody"
    text = proposal(
        entry("GET", "/activity", {"items": [{"id": 1, "text": told}]}),
        entry("GET", "/events", {"items": [{"id": 1, "text": f"{told}, {ANN['email']}"}]}),
        entry("GET", "/search?q=Zorbina", ["Zorbina"]),
        page("GET", "/dashboard", "<p>Welcome, Zorbina</p>"),
        page("GET", "/static/app.js", "hello('Zorbina')", "text/javascript"),
        entry("GET", "/news", {"items": [{"id": 1, "text": "It rains in the north"}]}),
        entry("GET", "/status", {"text": "fine"}),
        entry("POST", "/contacts", one, ANN),
    )
    rules = yaml.safe_load(text)
    assert (list(rules["entities"]), len(rules["operations"])) == (["contact"], 1)
    assert [line.split('"')[1] for line in text.splitlines() if "pass: true" in line] == [
        "GET /static/{part}.js", "GET /status",
    ]  # fmt: skip
    for path in ("/activity", "/events"):
        assert f"left out: GET {path}, answer items[*].text, because it repeats values" in text
    assert "left out: GET /dashboard, because name suspected" in text
    assert (
        "left out: GET /search, query q, because it repeats values of other places (name): a search"
        in text
    )
    assert "left out: GET /news, because nothing suspected, but it has sentences" in text


def test_codes_in_capitals_are_neither_proposed_nor_found_again():
    one = {**ANN, "id": 17, "name": "ZORBINA FLUMPER", "country": {"name": "SE"}}
    text = proposal(
        entry("POST", "/contacts", one, {**one, "status": {"name": "ORDER_PAID"}}),
        entry("GET", "/orders", [{"id": 1, "currency": "EUR", "status": "ORDER_PAID", "country": "SE"}]),
        entry("GET", "/events", [{"id": 1, "text": "Zorbina Flumper"}]),
        entry("GET", "/settings", {"id": 1, "email": "VERIFIED"}),
    )  # fmt: skip
    (entity,) = yaml.safe_load(text)["entities"].values()
    assert entity["fields"].keys() >= {"name", "email", "address_street"}
    assert not {"country_name", "status_name"} & entity["fields"].keys()
    assert [line.split('"')[1] for line in text.splitlines() if "pass: true" in line] == [
        "GET /orders"
    ]
    assert "left out: GET /events, answer [*].text, because it repeats values" in text
    assert "left out: GET /settings, answer email, because only codes in capitals" in text


def test_what_is_left_out_says_why():
    one = {**ANN, "id": 17, "zzyx": ANN["email"], "city": "Visby"}
    answer = {"items": [one], "owner": {"id": 2, "email": "q@x.example"}}
    refused = entry("PUT", "/contacts/17", {}, {"phone": ANN["email"], "fax": "0498-7", "id": 1})
    refused["response"]["status"] = 422
    other = entry("GET", "/x", {}, url="http://other.example/x")
    deep: Any = {"id": 1}
    for _ in range(20):
        deep = {"data": deep}
    text = proposal(
        entry("GET", "/contacts?phone=0498-7&email=x", answer), refused, other,
        entry("PUT", "/contacts/17", {"id": 17, "phone": "0498 7", "email": [ANN["email"]]}, deep),
        entry("POST", "/contacts", one, {"e": "", "phone": ANN["email"]}),
    )  # fmt: skip
    left = "\n".join(line for line in text.splitlines() if line.startswith("# left out: "))
    for said in (
        "1 of 5 requests, to other addresses",
        "GET /contacts, 1 member of the answer, because the name might be somebody's",
        "GET /contacts, answer owner, because one object is proposed for each operation: name email",
        "GET /contacts, query phone, because phone suspected in a search",
        "GET /contacts, items[*].address.city, items[*].city, because nothing was suspected",
        "PUT /contacts/{id}, 1 answer, because answers that are no success",
        "PUT /contacts/{id}, the rest of a large body",
    ):
        assert f"left out: {said}" in left, left


def test_the_kinds_of_a_field_that_had_several_are_told():
    text = proposal(
        entry("POST", "/contacts", {"id": 1}, {"contact": ANN["email"]}),
        entry("POST", "/contacts", {"id": 1}, {"contact": ANN["email"]}),
        entry("POST", "/contacts", {"id": 1}, {"contact": ANN["iban"]}),
    )
    assert (
        "left out: iban (1 x) as the kind of contact.contact, because email was suspected 2 x"
        in text
    )


def test_texts_of_a_list_are_looked_at():
    text = proposal(
        entry("POST", "/contacts", {"id": 1}, {"emails": [ANN["email"], "b@x.example"]})
    )
    fields = yaml.safe_load(text)["entities"]["contact"]["fields"]
    assert fields["emails"] == {"kind": "email", "token": {"shape": "email", "same": True}, "find": ["exact"], "at": "$.emails[*]"}  # fmt: skip


def test_a_single_page_admin_is_proposed_with_the_id_that_its_paths_have():
    kind = "/content-manager/collection-types/api::customer.customer"
    sent = {"firstName": "Zorbina", "lastName": "Wexlomere", "birthDate": "1931-02-27"}
    one = {**sent, "id": 1447, "documentId": "a7txc15jmx0bzpajdv0m0s9x"}
    staff = {"user": {"id": 1, "firstname": "Zorbina", "email": "zorbina@wexlomere.example"}}
    text = proposal(
        entry("POST", "/admin/login", {"data": staff}, {"email": "zorbina@wexlomere.example"}),
        entry("GET", "/content-manager/init", {"data": [{"uid": "api::customer.customer"}]}),
        entry("POST", kind, {"data": one}, sent),
        entry("GET", kind, {"results": [one, one]}),
        entry("POST", f"{kind}/actions/publish", {"data": one}, sent),
        entry("PUT", f"{kind}/{one['documentId']}", {"data": one}, sent),
        entry("POST", f"{kind}/{one['documentId']}/actions/publish", {"data": one}, sent),
    )
    rules = yaml.safe_load(text)
    assert list(rules["entities"]) == ["customer"]
    assert {"firstName", "lastName", "birthDate"} <= rules["entities"]["customer"]["fields"].keys()
    told = {one["match"]: one for one in rules["operations"] if kind in one["match"]}
    assert {one["response"]["id"] for one in told.values()} == {"$.documentId"}
    assert told[f"POST {kind}"]["create"] == told[f"GET {kind}"]["read"] == "customer"
    assert told[f"POST {kind}/actions/publish"]["create"] == "customer"
    assert told[f"PUT {kind}/{{id}}"]["update"] == "customer"
    assert told[f"POST {kind}/{{id}}/actions/publish"]["update"] == "customer"
