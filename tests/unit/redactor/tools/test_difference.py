"""What a change of rules means for each value."""

from collections import Counter

from proxy.redactor.load import load_text
from proxy.redactor.tools.difference import RuleChange, RuleEffect, differences
from tests.support.table import table

RULES = """version: 1
endpoint:
  name: crm
  upstream: "http://127.0.0.1:3000"
  unmatched: report
  caller: {from: jwt, jwks: "https://id.example/keys"}
entities:
  person:
    expires: 30d
    population: 1000
    fields:
      name:  {kind: name}
      email: {kind: email, token: {shape: email, same: true}, find: [exact]}
      phone: {kind: phone, token: {shape: numeric, keep_last: 2}}
views:
  - {who: [sales], person: clear, except: {phone: mask}}
operations:
  - {match: POST /people, create: person}
  - {match: GET /people, read: person, query: {email: email}, response: {each: "$[*]"}}
  - {match: "GET|PUT /people/{id}", update: person, id: path id}
  - {match: POST /find, read: person, request: {form: {mail: email}}, response: {each: "$[*]"}}
  - {match: GET /static, pass: true}
"""
LOSES, GAINS, CHANGES = RuleEffect
FILE = "      scan:  {kind: text, token: filename}\nviews:"
UPLOAD = (
    "  - {match: POST /scans, create: person, request: {multipart: {scan: {filename: scan}}}}\n"
)

#: What stands in the rules, what takes its place, and what that means.
TABLE = [
    ("unmatched: report", "unmatched: pass", LOSES, "unmatched: report becomes pass"),
    ("unmatched: report", "unmatched: deny", GAINS, "unmatched: report becomes deny"),
    ("{kind: name}", "{kind: name, token: plain}", LOSES, "token: opaque becomes plain"),
    ("{kind: name}", "{kind: name, token: {shape: opaque, same: true}}", LOSES, "opaque (same)"),
    ("keep_last: 2", "keep_last: 4", LOSES, "numeric (last 2) becomes numeric (last 4)"),
    (", keep_last: 2", "", GAINS, "numeric (last 2) becomes numeric"),
    ("keep_last: 2", "keep_last: 4, else: opaque", LOSES, "numeric (last 2) becomes numeric"),
    ("{kind: name}", "{kind: name, stored: plain}", LOSES, "stored: sealed becomes plain"),
    ("find: [exact]", "find: [exact, partial]", LOSES, "find partial: impossible becomes possible"),
    ("expires: 30d", "expires: 7d", GAINS, "becomes 604800000 ms"),
    ("    expires: 30d\n", "", LOSES, "becomes never"),
    ("kind: name}", "kind: text}", CHANGES, "kind: name becomes text"),
    (", except: {phone: mask}", "", LOSES, "sees person.phone: mask becomes clear"),
    ("phone: mask", "phone: token", GAINS, "sees person.phone: mask becomes token"),
    ("who: [sales]", "who: [sales, support]", LOSES, "sees person.name: token becomes clear"),
    (
        "create: person}",
        "create: person, request: {fields: {phone: $.mobile}}}",
        LOSES,
        "the request's $.phone is not named any more (phone)",
    ),
    ("query: {email: email}, ", "", LOSES, "the parameter email is not named any more (email)"),
    ("email: email}, resp", "email: {refuse: always}}, resp", CHANGES, "email becomes refused"),
    ("{form: {mail: email}}", "{form: {mail: email, q: email}}", GAINS, "form field q is named"),
    ("  - {match: POST /people, create: person}\n", "", LOSES, "it passes as it comes"),
    (
        "match: POST /people, create: person",
        "match: POST /people, pass: true",
        LOSES,
        "unchanged now",
    ),
    ("GET|PUT", "GET|PUT|PATCH", GAINS, "it is ruled now: update person"),
    ("  - {match: GET /static, pass: true}\n", "", None, ""),
    ("{kind: email,", "{kind: email, check: true,", CHANGES, "check: none becomes"),
    ("3000", "3001", CHANGES, "upstream: http://127.0.0.1:3000 becomes http://127.0.0.1:3001"),
    ("id: path id}", "id: path id, request: {absent: keep, nulls: keep}}", CHANGES, "nulls"),
    ("/people/{id}", "/people/{key}", None, ""),
]


def changes(old: str, new: str) -> list[RuleChange]:
    return differences(load_text(old), load_text(new))


def edited(before: str, after: str) -> str:
    assert before in RULES
    text = RULES.replace(before, after)
    return text.replace("id: path id", "id: path key") if after.endswith("{key}") else text


@table(("before", "after", "effect", "text"), TABLE)
def test_each_edit_says_what_it_means(before, after, effect, text):
    found = changes(RULES, edited(before, after))
    if effect is None:
        assert found == []
        return
    told = [one for one in found if text in one.text]
    assert told, found
    assert {one.effect for one in told} == {effect}


@table(("before", "after"), [row[:2] for row in TABLE])
def test_what_one_way_loses_the_way_back_gains(before, after):
    new = edited(before, after)
    there, back = (
        Counter(one.effect for one in changes(*pair)) for pair in ((RULES, new), (new, RULES))
    )
    assert (there[LOSES], there[GAINS]) == (back[GAINS], back[LOSES])


def test_a_mask_that_shows_more_loses():
    masked = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:3000"}
entities: {person: {fields: {phone: {kind: phone, token: {shape: mask, last: 2}}}}}
operations: [{match: "GET /people/{id}", read: person, id: path id}]
"""
    (found,) = changes(masked, masked.replace("last: 2", "last: 4"))
    assert (found.effect, found.text) == (
        LOSES,
        "token: mask (last 2, character *) becomes mask (last 4, character *)",
    )
    found, *_ = changes(masked.replace("{shape: mask, last: 2}", "opaque"), masked)
    assert (found.effect, found.text) == (LOSES, "token: opaque becomes mask (last 2, character *)")


def test_the_same_rules_do_not_differ_however_they_are_written():
    assert changes(RULES, RULES) == []
    renamed = RULES.replace("{id}", "{number}").replace("path id", "path number")
    assert changes(RULES, renamed) == []


def test_a_path_whose_rule_is_gone_is_what_another_rule_makes_of_it():
    wider = RULES.replace(
        '"GET|PUT /people/{id}", update: person, id: path id', '"GET|PUT /{all*}", pass: true'
    )
    found = [one for one in changes(RULES, wider) if "/people/{id}" in one.subject]
    assert {(one.effect, one.text.partition(":")[0]) for one in found} == {
        (LOSES, "it passes unchanged now")
    }


def test_refusing_what_was_passed_loses_nothing():
    strict = RULES.replace("unmatched: report", "unmatched: deny")
    without = strict.replace("  - {match: POST /people, create: person}\n", "")
    assert RuleChange(
        CHANGES, "crm: POST /people", "no rule names it any more: it is refused"
    ) in changes(strict, without)
    assert (LOSES, "it was refused, and passes unchanged now") in {
        one[::2] for one in changes(strict, strict + "  - {match: GET /open, pass: true}\n")
    }


def test_conditions_tell_rules_of_one_path_apart():
    one = "  - {match: POST /rpc, when: {$.method: add}, create: person, request: {object: $.params}}\n"
    two = one.replace("add", "make")
    assert changes(RULES + one, RULES + one) == []
    found = changes(RULES + one, RULES + one + two)
    assert [change.effect for change in found if "make" in change.subject][:1] != []


def test_secrets_of_an_issuer_are_not_told(monkeypatch):
    monkeypatch.setenv("ASKER", "me:s3cret")
    asked = (
        "caller: {from: introspection, url: 'https://id.example/ask', credentials: '${env:ASKER}'}"
    )
    new = RULES.replace('caller: {from: jwt, jwks: "https://id.example/keys"}', asked)
    found = changes(RULES, new)
    assert found
    assert "s3cret" not in str(found)


ANSWERS = """  - match: "POST /people/{id}/form"
    update: person
    request: {form: {mail: email}}
    response: {success: [{status: [302, 303], location: "/people/{id}"}, {status: 200, text: saved}]}
  - match: POST /people/bulk
    update: person
    id: $.id
    request: {each: "$[*]"}
    response: {each: "$[*]"}
"""


@table(
    ("before", "after", "told"),
    [
        (
            "text: saved",
            "text: done",
            {
                (LOSES, 'success 200 with the text "saved" is not named any more'),
                (GAINS, 'success 200 with the text "done" is named'),
            },
        ),
        (
            "{status: 200, text: saved}",
            "200",
            {
                (LOSES, 'success 200 with the text "saved" is not named any more'),
                (CHANGES, "success: none becomes 200"),
            },
        ),
        ("[302, 303]", "[302]", {(LOSES, "success 303 to /people/{} is not named any more")}),
        ('"/people/{id}"}', '"/people/{key}"}', set()),
        (
            'response: {each: "$[*]"}\n',
            'response: {each: "$[*]", complete: true}\n',
            {(GAINS, "complete: none becomes true")},
        ),
    ],
)
def test_changed_meanings_of_an_answer_are_told(before, after, told):
    old = RULES + ANSWERS
    assert before in old
    found = changes(old, old.replace(before, after))
    assert {(one.effect, one.text.partition(" (")[0]) for one in found} == told


def test_the_name_of_a_file_that_is_not_named_any_more_is_a_loss():
    before = RULES.replace("views:", FILE) + UPLOAD
    after = before.replace("{scan: {filename: scan}}", "{title: name}, files: pass")
    told = {(one.effect, one.text) for one in differences(load_text(before), load_text(after))}
    lost = "the request's name of the file in part scan is not named any more (scan)"
    assert told >= {(LOSES, lost), (LOSES, "files: refuse becomes pass")}
