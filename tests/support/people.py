"""The rule file of the test application, with one field of every way to restore."""

RULES = """\
version: 1
endpoint: {{name: people, upstream: "{upstream}"}}
entities:
  person:
    fields:
      name:   {{kind: name}}
      email:  {{kind: email, token: {{shape: email, same: true}}, find: [exact]}}
      phone:  {{kind: phone, token: {{shape: numeric, keep_last: 2}}}}
      born:   {{kind: date, token: {{shape: date}}}}
      card:   {{kind: card, token: {{shape: luhn, keep_last: 4}}}}
      street: {{kind: text, at: $.address.street}}
      tags:   {{kind: text, at: "$.tags[*]"}}
      matrix: {{kind: text, at: "$.matrix[*][*]"}}
      pin:    {{kind: text, token: {{shape: fixed, value: hidden}}}}
operations:
  - match: POST /people
    create: person
    request: {{object: $}}
    response: {{object: $, id: $.id}}
  - match: POST /people/bulk
    create: person
    request: {{each: "$[*]"}}
    response: {{each: "$[*]", id: $.id}}
  - match: PATCH /people/bulk
    update: person
    id: "$.keys[*]"
    request: {{object: $.data}}
    response: {{each: "$[*]", id: $.id}}
  - match: GET /people
    read: person
    query: {{email: {{field: email}}}}
    response: {{each: "$.items[*]", id: $.id}}
  - match: "GET /people/{{id}}"
    read: person
    id: path id
    response: {{object: $}}
  - match: "PUT /people/{{id}}"
    update: person
    id: path id
    request: {{object: $, absent: erase}}
    response: {{object: $}}
  - match: "PATCH /people/{{id}}"
    update: person
    id: path id
    request: {{object: $, absent: keep}}
    response: {{object: $}}
  - match: "DELETE /people/{{id}}"
    delete: person
    id: path id
  - match: POST /people/form
    create: person
    request: {{form: {{name: name, email: email, phone: phone, pin: pin}}}}
    response: {{success: [302], id: "header Location /people/{{id}}"}}
  - match: "POST /people/{{id}}/form"
    update: person
    id: path id
    request: {{form: {{name: name, email: email, phone: phone, pin: pin}}, absent: keep}}
    response: {{success: [303]}}
"""

#: Behind the rules: reads are refused while the vault cannot be asked.
REFUSING = "\non_error: {vault_down: {read: 503}}\n"


def rules(upstream: str) -> str:
    """The rule file for an application at that address."""
    return RULES.format(upstream=upstream)


#: The same without what lies deeper than the members of an object: its ordinary exchanges go their
#: fast path.
FLAT = "".join(
    line
    for line in RULES.splitlines(keepends=True)
    if not line.lstrip().startswith(("street:", "tags:", "matrix:"))
)

#: The same, its people kept among the records of the record-based family.
KEPT = (
    RULES.replace("  person:\n", "  person:\n    schema: records\n")
    .replace("name:   {{kind: name}}", "name:   {{kind: name, keep_as: profile_key}}")
    .replace("same: true}}, find: [exact]}}", "same: true}}, keep_as: key3}}")
    .replace("keep_last: 2}}}}", "keep_last: 2}}, keep_as: key4}}")
    .replace(
        "kind: card, token: {{shape: luhn, keep_last: 4}}",
        "kind: card, token: {{shape: luhn, keep_last: 4}}, keep_as: range_key2, stored: plain",
    )
    .replace('at: "$.tags[*]"', 'at: "$.tags[*]", keep_as: body')
)
#: The same, with a key that the settings may keep in the clear.
KEPT_PLAIN = KEPT.replace("keep_as: key4}}", "keep_as: key4, stored: plain}}")

#: A person none of whose values is like anything else in a message, a log line or a metric.
ANN = {
    "name": "Zorbina Quibblethwaite", "email": "Zorbina.Q@Wexlomere.example",
    "phone": "+46 70 918 27 36", "born": "1931-02-27", "card": "4929 4212 3460 0821",
    "address": {"street": "Flumpergatan 77b", "city": "Visby"},
    "tags": ["yxmarker-one", "yxmarker-two"], "matrix": [["qoph-11", "qoph-12"], ["qoph-21"]],
    "vip": True,
}  # fmt: skip

#: What must never be found anywhere outside.
MARKERS = (
    "Zorbina Quibblethwaite", "Quibblethwaite", "Wexlomere", "+46 70 918 27", "4929 4212 3460",
    "Flumpergatan", "yxmarker-one", "yxmarker-two", "qoph-12",
)  # fmt: skip
