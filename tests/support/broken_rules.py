"""Broken rule files: name, text with a mark before the place of each fault, and words that each
fault must say.

The words are what an operator needs: the name at fault, and what to write instead.
"""

from tests.support.rules import ENTITIES, HEAD, with_fields, with_operations

Case = tuple[str, str, tuple[str, ...]]

_VALID = f"{HEAD}{ENTITIES}"

# One case a line reads as the table it is.
# fmt: off

YAML: list[Case] = [
    ("empty file", "▲", ("version: 1",)),
    ("only a comment", "▲# nothing\n", ("version: 1",)),
    ("a list at the top", "▲- a\n", ("rule file must be a mapping",)),
    ("a text at the top", "▲hello\n", ("rule file must be a mapping",)),
    ("bracket left open", "version: 1\nendpoint: {name: crm\n▲", ("not YAML",)),
    ("colon in a plain value", "version: 1\nendpoint: {name: crm, upstream: http://x}\na: b▲: c\n", ("quotes",)),
    ("tab as indentation", "version: 1\nendpoint:\n▲\tname: crm\n", ("indent with spaces",)),
    ("duplicate key", f"{HEAD}▲version: 1\n", ("'version' stands twice (first in line 1)",)),
    ("duplicate field", with_fields("email: {kind: email}", "▲email: {kind: text}"), ("'email' stands twice",)),
    ("duplicate key in flow", with_fields("email: {kind: email, ▲kind: text}"), ("'kind' stands twice",)),
    ("second document", f"{HEAD}▲---\nversion: 1\n", ("one document a file",)),
    ("tag", f"{HEAD}entities: ▲!!python/object:os.system {{}}\n", ("without it",)),
    ("merge key", (f"{HEAD}entities:\n  a: &a {{fields: {{b: {{kind: text}}}}}}\n  c: {{▲<<: *a, fields: "
        "{b: {kind: text}}}\n"), ("merge keys",)),
    ("alias of nothing", f"{HEAD}entities: ▲*gone\n", ("'*gone' names nothing",)),
    ("alias inside itself", f"{HEAD}entities: &a {{b: ▲*a}}\n", ("inside what it names",)),
    ("key that is a list", f"{HEAD}? ▲[a]\n: b\n", ("a key must be a plain text",)),
    ("too deep", "a: " + "[" * 39 + "▲[" + "]" * 40, ("levels deep",)),
]

TOP: list[Case] = [
    ("no version", "▲endpoint: {name: crm, upstream: \"http://a\"}\n", ("lacks 'version'",)),
    ("another version", "version: ▲2\nendpoint: {name: crm, upstream: \"http://a\"}\n", ("must be 1",)),
    ("no endpoint", "▲version: 1\n", ("lacks 'endpoint'",)),
    ("unknown key", f"{HEAD}▲operation: []\n", ("did you mean 'operations'?",)),
    ("views", f"{HEAD}▲views: []\n", ("'views' is not supported yet",)),
    ("entities as a list", f"{HEAD}entities: ▲[contact]\n", ("entity name",)),
    ("operations as a mapping", f"{HEAD}operations: ▲{{match: GET /}}\n", ("must be a list",)),
    ("no operation in the list", f"{HEAD}operations: ▲[]\n", ("leave the key out",)),
    ("operation that is a text", f"{HEAD}operations: [▲GET /]\n", ("operation must be a mapping",)),
]

ENDPOINT: list[Case] = [
    ("no name", "version: 1\nendpoint: ▲{upstream: \"http://a\"}\n", ("lacks 'name'",)),
    ("name in capitals", "version: 1\nendpoint: {name: ▲CRM, upstream: \"http://a\"}\n", ("small letters",)),
    ("name that is a number", "version: 1\nendpoint: {name: ▲17, upstream: \"http://a\"}\n", ('put it in quotes: "17"',)),
    ("no upstream", "version: 1\nendpoint: ▲{name: crm}\n", ("lacks 'upstream'",)),
    ("upstream without scheme", "version: 1\nendpoint: {name: crm, upstream: ▲\"crm:80\"}\n", ("http://host:port",)),
    ("upstream with a path", "version: 1\nendpoint: {name: crm, upstream: ▲\"http://crm/app\"}\n", ("without path",)),
    ("upstream with credentials", "version: 1\nendpoint: {name: crm, upstream: ▲\"http://u:p@crm\"}\n", ("credentials",)),
    ("unset variable", "version: 1\nendpoint: {name: crm, upstream: ▲\"${env:DOMICILE_TEST_UNSET}\"}\n", ("DOMICILE_TEST_UNSET is not set",)),
    ("missing file", "version: 1\nendpoint: {name: crm, upstream: ▲\"${file:not-there}\"}\n", ("not-there cannot be read",)),
    ("strange reference", "version: 1\nendpoint: {name: crm, upstream: ▲\"${vault:x}\"}\n", ("${env:NAME} or ${file:path}",)),
    ("reference out of place", "version: 1\nendpoint: {name: ▲\"${env:HOME}\", upstream: \"http://a\"}\n", ("not allowed here",)),
    ("host with port", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", host: [▲\"a.example:80\"]}\n", ("without scheme, port",)),
    ("host pattern", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", host: ▲\"*.example\"}\n", ("matched whole",)),
    ("prefix with placeholder", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", prefix: ▲\"/{x}\"}\n", ("no placeholders",)),
    ("prefix of everything", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", prefix: ▲/}\n", ("leave prefix out",)),
    ("unmatched misspelt", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", unmatched: ▲block}\n", ("report, pass or deny",)),
    ("caller", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", ▲caller: {from: none}}\n", ("not supported yet",)),
    ("size without unit", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", limits: {body: ▲2M}}\n", ("2MiB",)),
    ("depth out of bounds", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", limits: {json_depth: ▲0}}\n", ("from 1 to 1000",)),
    ("unknown limit", "version: 1\nendpoint: {name: crm, upstream: \"http://a\", limits: {▲bodies: 2MiB}}\n", ("did you mean 'body'?",)),
]

ENTITY: list[Case] = [
    ("no fields", f"{HEAD}entities: {{person: ▲{{schema: person}}}}\n", ("lacks 'fields'",)),
    ("empty fields", f"{HEAD}entities: {{person: {{fields: ▲{{}}}}}}\n", ("name at least one field name",)),
    ("strange entity name", f"{HEAD}entities: {{▲my-person: {{fields: {{a: {{kind: text}}}}}}}}\n", ("letters, digits and '_'",)),
    ("strange field name", with_fields("▲first-name: {kind: name}"), ("letters, digits and '_'",)),
    ("no kind", with_fields("email: ▲{token: email}"), ("lacks 'kind'",)),
    ("kind misspelt", with_fields("email: {kind: ▲mail}"), ("'mail' is not known here",)),
    ("kind that YAML 1.1 makes a truth value", with_fields("email: {kind: ▲no}"), ("'no' is not known here",)),
    ("field without content", with_fields("email:▲ "), ("field must be a mapping",)),
    ("unknown field key", with_fields("email: {kind: email, ▲tokens: email}"), ("did you mean 'token'?",)),
    ("mask", with_fields("email: {kind: email, ▲mask: {first: 1}}"), ("not supported yet",)),
    ("unknown shape", with_fields("email: {kind: email, token: ▲mail}"), ("'mail' is not known here",)),
    ("option of another shape", with_fields("email: {kind: email, token: {shape: email, ▲keep_last: 2}}"), ("has no option 'keep_last'",)),
    ("option misspelt", with_fields("phone: {kind: phone, token: {▲keep_lst: 2}}"), ("unknown key 'keep_lst'",)),
    ("option of the wrong type", with_fields("phone: {kind: phone, token: ▲{keep_last: two}}"), ("keep_last of token shape numeric",)),
    ("reference in an option", with_fields('x: {kind: text, token: {shape: fixed, value: ▲"${env:X}"}}'), ("not allowed here",)),
    ("template that is none", with_fields('x: {kind: text, token: ▲{template: "PP-[A-Z"}}'), ("template",)),
    ("shape too small", with_fields('x: {kind: text, token: ▲{template: "P[0-9]{6}"}}'), ("room for 1,000,000",)),
    ("shape too small for the plan", with_fields('x: {kind: text, token: ▲{template: "P[0-9]{6}"}}', entity="population: 600000"), ("1,200,000",)),
    ("range without plain", with_fields("x: {kind: date, ▲find: [range]}"), ("stored: plain",)),
    ("partial search", with_fields("x: {kind: text, find: [▲partial]}"), ("not supported yet",)),
    ("find as a word", with_fields("x: {kind: text, find: ▲exact}"), ("must be a list: [exact]",)),
    ("stored misspelt", with_fields("x: {kind: text, stored: ▲clear}"), ("write plain",)),
    ("place without root", with_fields("x: {kind: text, at: ▲address}"), ("write $.address",)),
    ("place with a filter", with_fields('x: {kind: text, at: ▲"$.a[?(@.b)]"}'), ("filters",)),
    ("place that is the object", with_fields("x: {kind: text, at: ▲$}"), ("inside the entity's object",)),
    ("place that is an element", with_fields('x: {kind: text, at: ▲"$[0]"}'), ("inside the entity's object",)),
    ("same place twice", with_fields("a: {kind: text, at: $.x}", "b: {kind: text, at: ▲$.x}"), ("b at $.x overlaps a",)),
    ("place in another's", with_fields("a: {kind: text, at: $.x}", "b: {kind: text, at: ▲$.x.y}"), ("overlaps",)),
    ("name in another's place", with_fields("a: {kind: text, at: $.b}", "▲b: {kind: text}"), ("overlaps a at $.b",)),
    ("constants in a list", with_fields('a: {kind: number, token: zero, at: ▲"$.marks[*]"}'), ("the token shape zero gives them the same token",)),
    ("masks in a list", with_fields('a: {kind: text, token: mask, at: ▲"$..a"}'), ("the token shape mask gives them the same token",)),
    ("element of all elements", with_fields('a: {kind: text, at: "$.t[*]"}', 'b: {kind: text, at: ▲"$.t[0]"}'), ("overlaps",)),
    ("letter case only", with_fields("mail: {kind: text, at: $.a}", "▲Mail: {kind: text, at: $.b}"), ("letter case only",)),
    ("duration without unit", with_fields("a: {kind: text}", entity="expires: ▲7"), ("12h, 90d or 7y",)),
    ("schema name", with_fields("a: {kind: text}", entity='schema: ▲"a b"'), ("letters, digits",)),
    ("one schema, two shapes of it", (f"{HEAD}entities:\n  a: {{schema: s, fields: {{x: {{kind: text}}}}}}\n  ▲b: {{schema: s, "
        "fields: {y: {kind: text}}}\n"), ("defined differently",)),
]

OPERATION: list[Case] = [
    ("several places of a constant", with_fields("a: {kind: number, token: one}") + 'operations:\n  - {match: "PUT /a/{id}", update: person, ▲request: {fields: {a: '
        '"$.x[*]"}}, ▲response: {fields: {a: "$.y.*"}}}\n', ("several values in one record", "the token shape one")),
    ("no match", with_operations("▲{read: note}"), ("lacks 'match'",)),
    ("no method", with_operations("{match: ▲/notes, read: note}"), ("METHOD and path",)),
    ("method in small letters", with_operations("{match: ▲post /notes, create: note}"), ("in capitals: POST",)),
    ("method misspelt", with_operations("{match: ▲PSOT /notes, create: note}"), ("did you mean 'POST'?",)),
    ("HEAD", with_operations("{match: ▲HEAD /notes, read: note}"), ("write GET",)),
    ("method twice", with_operations("{match: ▲GET|GET /notes, read: note}"), ("write it once",)),
    ("path with query", with_operations('{match: ▲"GET /notes?a=b", read: note}'), ("under query:",)),
    ("path with escapes", with_operations("{match: ▲GET /n%20, read: note}"), ("every spelling is matched",)),
    ("placeholder left open", with_operations('{match: ▲"GET /notes/{id", read: note}'), ("unmatched brace",)),
    ("placeholder twice", with_operations('{match: ▲"GET /a/{id}/b/{id}", read: note}'), ("stands twice",)),
    ("rest in the middle", with_operations('{match: ▲"GET /a/{x*}/b", read: note}'), ("must stand last",)),
    ("dot segments", with_operations("{match: ▲GET /a/../b, read: note}"), ("without '.' and '..'",)),
    ("pass beside a verb", with_operations("{match: GET /notes, pass: true, ▲read: note}"), ("nobody's data is in this request and its answer, and 'read'",)),
    ("pass with an answer", with_operations("{match: GET /notes, pass: true, ▲response: {object: $}}"), ("'response' that there is; leave one",)),
    ("pass with a query", with_operations("{match: GET /notes, pass: true, ▲query: {a: text}}"), ("'query'",)),
    ("pass that does not", with_operations("{match: GET /notes, pass: ▲false}"), ("must be true",)),
    ("pass as a word", with_operations("{match: GET /notes, pass: ▲yes}"), ("must be true",)),
    ("pass and another rule", with_operations("{match: GET /notes, read: note}", "{match: ▲GET /notes, pass: true}"), ("names the same requests",)),
    ("pass out of reach", with_operations("{match: ▲GET /notes, pass: true}").replace('3000"', '3000", prefix: /crm'), ("/crm/notes",)),
    ("no verb", with_operations("▲{match: GET /notes}"), ("create, read, update or delete",)),
    ("two verbs", with_operations("{match: POST /notes, create: note, ▲read: note}"), ("two operations",)),
    ("unknown entity", with_operations("{match: POST /notes, create: ▲notes}"), ("did you mean 'note'?",)),
    ("when", with_operations("{match: POST /notes, create: note, ▲when: {$.a: b}}"), ("not supported yet",)),
    ("envelope", with_operations("{match: POST /notes, create: note, ▲envelope: {}}"), ("not supported yet",)),
    ("patch of another kind", with_operations('{match: "PATCH /n/{id}", update: note, request: {patch: ▲xml}}'), ("write json",)),
    ("patch of a create", with_operations("{match: POST /n, create: note, request: {▲patch: json}}"), ("write update",)),
    ("patch and absent", with_operations('{match: "PATCH /n/{id}", update: note, request: {patch: json, ▲absent: keep}}'), ("leave 'absent' out",)),
    ("merge patch and nulls", with_operations('{match: "PATCH /n/{id}", update: note, request: {patch: merge, ▲nulls: keep}}'), ("leave 'nulls' out",)),
    ("patch of many", with_operations('{match: "PATCH /n/{id}", update: note, id: path id, request: {patch: json, ▲each: "$[*]"}}'), ("one object",)),
    ("patch with the id", with_operations("{match: PATCH /n, update: note, id: ▲$.id, request: {patch: scim}}"), ("changes and no id",)),
    ("patch to any depth", with_operations('{match: "PATCH /n/{id}", update: note, request: {▲patch: dotted, fields: {text: $..text}}}'), ("cannot be followed to text",)),
    ("patch of small tokens", with_operations('{match: "PATCH /n/{id}", update: contact, request: {▲patch: json, fields: {born: "$.b[*]"}}}'), ("choose a larger shape",)),
    ("own mask", with_operations('{match: "PATCH /n/{id}", update: note, request: {▲own_mask: keep}}'), ("not supported yet",)),
    ("carriers", with_operations("{match: GET /n, read: note, response: {▲carriers: [$.next]}}"), ("not supported yet",)),
    ("via", with_operations("{match: GET /n, read: contact, query: {q: {field: email, ▲via: vault}}, response: {id: "
        "$.id}}"), ("not supported yet",)),
    ("refuse", with_operations("{match: GET /n, read: note, query: {sort: ▲{▲refuse: always}}}"), ("lacks 'field'", "not supported yet")),
    ("both object and each", with_operations('{match: GET /n, read: note, response: {object: $, ▲each: "$[*]"}}'), ("exclude each other",)),
    ("each of one", with_operations("{match: GET /n, read: note, response: {each: ▲$.items}}"), ("write $.items[*]",)),
    ("field nobody declared", with_operations("{match: POST /n, create: note, request: {fields: {▲txt: $.t}}}"), ("did you mean 'text'?",)),
    ("place of the whole document", with_operations("{match: POST /n, create: note, request: {fields: {text: ▲$}}}"), ("whole document",)),
    ("files without parts", with_operations('{match: POST /n, create: note, request: {▲files: pass}}'), ("multipart: {caption: note}",)),
    ("part of no field", with_operations('{match: POST /n, create: note, request: {multipart: {t: ▲txt}}}'), ("no field 'txt'", "text")),
    ("part that is the id", with_operations('{match: PUT /n, update: note, id: ▲form t, request: {multipart: {t: text}}}'), ("the protected field text",)),
    ("search by parts without equal tokens", with_operations('{match: POST /n, read: contact, ▲request: {multipart: {n: name}}, response: {id: $.id}}'), ("same: true",)),
    ("stream of a create", with_operations('{match: POST /n, create: note, response: {▲stream: sse}}'), ("decided by its whole answer",)),
    ("stream of forms", with_operations('{match: GET /n, read: note, response: {stream: sse, ▲form: {t: text}}}'), ("JSON documents", "leave 'form' out")),
    ("stream of pages", with_operations('{match: GET /n, read: note, response: {stream: ndjson, ▲restore: anywhere}}'), ("leave 'restore' out",)),
    ("stream of another kind", with_operations('{match: GET /n, read: note, response: {stream: ▲xml}}'), ("write ndjson or sse",)),
    ("small shape in a stream without id", with_operations('{match: GET /n, read: contact, ▲response: {each: $, stream: ndjson}}'), ("born has the token shape date",)),
    ("place outside of the objects", with_operations('{match: POST /n, create: note, request: {each: "$.n[*]", fields: {text: ▲$.t}}}'), ("write $.n[*].text",)),
    ("place of another field", with_operations("{match: POST /n, create: contact, request: {fields: {name: ▲$.email}}}"), ("name overlaps email",)),
    ("form member of no field", with_operations("{match: POST /n, create: note, request: {form: {t: ▲txt}}, response: {id: $.id}}"), ("did you mean 'text'?",)),
    ("tie of member patterns", with_operations('{match: PUT /n, update: contact, id: form id, request: {form: {"a*": email, ▲"*a": '
        'name}}}'), ("neither is more specific",)),
    ("create of a form without id", with_operations("{match: POST /n, ▲create: note, request: {form: {t: text}}}"), ("header Location",)),
    ("create with redirects only", with_operations("{match: POST /n, ▲create: note, response: {success: [302]}}"), ("header Location",)),
    ("create with an id in the request", with_operations("{match: POST /n, create: note, ▲id: $.id}"), ("response: {id: $.id}",)),
    ("update of nobody", with_operations("{match: PUT /n, ▲update: note}"), ("id: $.id, id: query id or id: form id",)),
    ("update with another placeholder", with_operations('{match: "PUT /n/{number}", ▲update: note}'), ("id: path number",)),
    ("delete of nobody", with_operations("{match: DELETE /n, ▲delete: note}"), ("which record",)),
    ("id of no placeholder", with_operations('{match: "PUT /n/{id}", update: note, id: ▲path ident}'), ("no placeholder {ident}",)),
    ("id of nowhere", with_operations('{match: "PUT /n/{id}", update: note, id: ▲body id}'), ("path NAME",)),
    ("id in a request header", with_operations('{match: "PUT /n", update: note, id: ▲"header X-Id {id}"}'), ("not supported yet",)),
    ("address without id", with_operations("{match: POST /n, create: note, response: {id: ▲header Location /n}}"), ("one placeholder",)),
    ("id inside an address of the body", with_operations('{match: POST /n, create: note, response: {id: ▲"$.url /n/{id}"}}'), ("not supported yet",)),
    ("id of the request in the answer", with_operations('{match: "GET /n/{id}", read: note, response: {id: ▲path id}}'), ("beside 'match'",)),
    ("id that is a field", with_operations("{match: POST /n, create: contact, response: {id: ▲$.email}}"), ("protected field email",)),
    ("id that is a field of this operation's own", with_operations('{match: "PUT /n", update: note, id: ▲$.b, request: {object: $.a, fields: {text: $.b}}}'), ("protected field text",)),
    ("id that is a field of a form", with_operations('{match: "PUT /n", update: note, id: ▲form t, request: {form: {t: text}}}'), ("protected field text",)),
    ("id that a pattern of a form names", with_operations('{match: "PUT /n", update: note, id: ▲$.t_1, request: {form: {"t_*": text}}}'), ("protected field text",)),
    ("id in a form of the answer", with_operations('{match: GET /n, read: contact, response: {form: {m: email}, id: ▲form m}}'), ("protected field email",)),
    ("id that is searched for", with_operations('{match: DELETE /n, delete: contact, id: ▲query mail, query: {"m*": email}}'), ("protected field email",)),
    ("values in the address of a create", with_operations('{match: POST /n, create: contact, ▲query: {mail: email}}'), ("sent in the body",)),
    ("values in the address of an update", with_operations('{match: "PUT /n/{id}", update: contact, ▲query: {mail: email}}'), ("sent in the body",)),
    ("small shape in a list without id", with_operations('{match: GET /n, read: contact, ▲response: {each: "$[*]"}}'), ("born has the token shape date",)),
    ("too few free digits without id", (f"{HEAD}entities: {{p: {{fields: {{card: {{kind: card, token: {{shape: luhn, keep_first: "
        "6, keep_last: 4}}}}}\noperations: [{match: ▲GET /n, read: p}]\n"), ("card has the token shape luhn",)),
    ("search of a random token", with_operations('{match: GET /n, read: contact, query: {n: ▲{field: name}}, response: {id: $.id}}'), ("same: true",)),
    ("search in a body", with_operations("{match: POST /s, read: contact, ▲request: {form: {n: name}}, response: {id: $.id}}"), ("same: true",)),
    ("words of writing in a read", with_operations("{match: GET /n, read: note, request: {▲nulls: keep}}"), ("means nothing to a read",)),
    ("absent in a create", with_operations("{match: POST /n, create: note, request: {▲absent: keep}}"), ("means nothing to a create",)),
    ("absent misspelt", with_operations('{match: "PUT /n/{id}", update: note, request: {absent: ▲drop}}'), ("keep or erase",)),
    ("success that is a refusal", with_operations("{match: POST /n, create: note, response: {success: [▲404]}}"), ("from 200 to 399",)),
    ("condition without a condition", with_operations('{match: "PUT /n/{id}", update: note, response: {success: ▲{status: 302}}}'), ("add location or text",)),
    ("condition without a status", with_operations('{match: "PUT /n/{id}", update: note, response: {success: [▲{location: /n}]}}'), ("lacks 'status'",)),
    ("condition misspelt", with_operations('{match: "PUT /n/{id}", update: note, response: {success: {status: 302, ▲locations: /n}}}'), ("did you mean 'location'?",)),
    ("location of no redirect", with_operations('{match: "PUT /n/{id}", update: note, response: {success: {status: [302, ▲200], '
        'location: /n}}}'), ("200 is none",)),
    ("location with a host", with_operations('{match: "PUT /n/{id}", update: note, response: {success: {status: 302, location: '
        '▲"https://a.example/n"}}}'), ("without scheme and host",)),
    ("location with a query", with_operations('{match: "PUT /n/{id}", update: note, response: {success: {status: 302, location: '
        '[▲"/n?saved=1"]}}}'), ("ends before '?'",)),
    ("status with and without a condition", with_operations('{match: "PUT /n/{id}", update: note, response: {success: [302, {status: ▲302, location: '
        '/n}]}}'), ("keep one of the two",)),
    ("id where no redirect leads", with_operations('{match: POST /n, create: note, response: {id: ▲"header Location /n/{id}", success: '
        '{status: 302, location: /login}}}'), ("this id is never told",)),
    ("same rule twice", with_operations("{match: GET /n, read: note}", "{match: ▲GET|POST /n/, read: note}"), ("in line 13 names the same requests",)),
    ("same placeholder under another name", with_operations('{match: "GET /n/{id}", read: note}', '{match: ▲"GET /n/{nr}", read: note}'), ("keep one of the two",)),
    ("tie", with_operations('{match: "GET /a/{x}", read: note}', '{match: ▲"GET /{y}/b", read: note}'), ("add a rule for GET /a/b",)),
    ("tie of texts around placeholders", with_operations('{match: "GET /a{x}", read: note}', '{match: ▲"GET /{y}b", read: note}'), ("longer",)),
    ("path outside of the prefix", with_operations("{match: ▲GET /n, read: note}").replace("name: crm,", "name: crm, prefix: /crm,"), ("write /crm/n",)),
]

REST: list[Case] = [
    ("unknown error", f"{_VALID}on_error: {{▲unreadable: 415}}\n", ("did you mean 'unreadable_body'?",)),
    ("status of no error", f"{_VALID}on_error: {{too_large: ▲200}}\n", ("from 400 to 599",)),
    ("vault_down as a status", f"{_VALID}on_error: {{vault_down: ▲503}}\n", ("vault_down must be a mapping",)),
    ("vault_down read", f"{_VALID}on_error: {{vault_down: {{read: ▲clear}}}}\n", ("'tokens' or an HTTP status",)),
    ("unreadable_answer", f"{_VALID}on_error: {{unreadable_answer: ▲pass}}\n", ("'tokens' or an HTTP status",)),
    ("guard", f"{_VALID}on_error: {{▲guard: block}}\n", ("not supported yet",)),
    ("test without call", f"{_VALID}tests: [▲{{name: a}}]\n", ("lacks 'call'",)),
    ("test as somebody", f"{_VALID}tests: [{{name: a, ▲as: sales, call: {{match: GET /n}}}}]\n", ("not supported yet",)),
    ("call of nothing", f"{_VALID}tests: [{{name: a, call: ▲{{json: 1}}}}]\n", ("match: GET /contacts/17",)),
    ("call with two bodies", f"{_VALID}tests: [{{name: a, call: ▲{{match: POST /n, json: 1, form: {{a: b}}}}}}]\n", ("one body",)),
    ("call of a template", f"{_VALID}tests: [{{name: a, call: ▲{{match: \"GET /n/{{id}}\"}}}}]\n", ("without placeholders",)),
    ("test of an unknown shape", (f"{_VALID}tests: [{{name: a, call: ▲{{match: GET /n}}, app_sees: {{json: {{shape: "
        "mail}}}]\n"), ("any token of a shape",)),
    ("test name twice", (f"{_VALID}tests: [{{name: a, call: {{match: GET /n}}}}, {{name: ▲a, call: {{match: GET "
        "/n}}]\n"), ("rename one",)),
]
# fmt: on

CASES: list[Case] = [*YAML, *TOP, *ENDPOINT, *ENTITY, *OPERATION, *REST]
