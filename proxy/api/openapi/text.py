"""The sentences of the interface document: what holds for every operation, what parameters and
statuses mean.
"""

from typing import Any, Final

INTRODUCTION: Final = """
Domicile keeps records of people in one country, each sealed, and answers what may be asked of them. A **schema** says which fields
its records have, of which type, and how each is stored; a **record** has a primary key and any number of **attachments**.

## Getting in

Send the identifier and the secret of a client to `POST /oauth2/token`; the answer has an access token that is good for 300 seconds.
With curl: `curl -u "$client_id:$client_secret" -d grant_type=client_credentials http://127.0.0.1:8081/oauth2/token`.
Send it with every request: `Authorization: Bearer <token>`. Without a valid one the answer is 401, whatever was asked.

## Values

| Type of the field | On the wire |
|---|---|
| primary_key, string | string |
| integer | JSON number without a fraction, 64 bits |
| decimal | JSON number, at most 12 digits before the point and 4 after it; exact |
| boolean | `true`, `false` |
| datetime | `YYYY-MM-DDThh:mm:ss.sssZ`, UTC |
| date, time | `YYYY-MM-DD`, `hh:mm:ss` |
| json | object |

`null` is kept and answered as `null`. Bodies are JSON in UTF-8 (`Content-Type: application/json`), at most `limits.body` bytes. A member
that an operation does not know, a member that stands twice, and an unknown query parameter are 400. Every answer that is not a
success is a problem document (RFC 9457) with a stable `code` and every fault in `errors`; none repeats a value.

## Filters

All members of a filter hold. Equality is that of the Unicode normal form NFKC without spaces around it; but a primary key is
compared as it was written, character by character.

| Form | Meaning |
|---|---|
| `<field>: <value>` | exactly that; `null`: no value |
| `<field>: [<value>, …]` | one of them |
| `<field>: {"$not": <value or array>}` | none of them; strings, the primary key and `version` |
| `<field>: {"$gt": …, "$gte": …, "$lt": …, "$lte": …}` | integers, decimals, dates, times and `version`; `$gt` not with `$gte`, `$lt` not with `$lte` |
| `<field>: {"$like": <text>}` | the text occurs, whatever the letter case; strings |
| `"search_keys": <text>` | the text, 3 to 200 characters, occurs in one string field at least; not with filters on string fields |
| `"$or": [<filter>, <filter>, …]` | one of them holds; string fields, no `$or` inside |
| `<json field>: {"$.path": <value>}` | the value stands there, or an array that contains it; with an array: contains all of its items |

What can be asked depends on how a field is stored: `indexed` (a column in the clear) everything; `indexed_hashed` (a keyed hash) exact,
list and `$not`, and `$like` and `search_keys` where `partial_match` is on; `encrypted` nothing. Anything else is 400 and says why.

- `null` stands for *no value*, alone, in a list and below `$not`; `$not` includes records without a value unless it names `null`.
  Inside a JSON field `null` is a `null` that stands there. An empty list is 400: it would match nothing, or everything.
- `$like` and `search_keys` compare case-folded normal forms; no character is special. `$like` takes 1 to 256 characters on a field
  that is `indexed`, 3 to 200 on a hashed one; `{"$not": {"$like": …}}` negates it. On hashed fields records are opened to be sure: a search
  that would open more than 100,000 for all its partial matches is 422 `too_broad`. Partial match that is off is 401 `partial_match_disabled`, 403 for clone.
- `search_keys` goes with no condition on a string field or the primary key, also not inside `$or`; inside `$or` it cannot stand.
- A path is `$` and names, `.name` or `['any name']`, and numbers of elements, `[0]`. `1` equals `1.0`; `true` equals no number.
- A filter has at most 200 conditions and 1,000 values.

**Options.** `limit` is 1 up to the maximum, `offset` 0 up to 2147483647; anything else is 400, not cut down. `sort` takes `indexed` string
and integer fields, `created_at`, `updated_at`, `expires_at`, each once; texts are in the order of the code points of their normal form, a
missing value comes before every other, and equal records come in the order in which they were created. A record that does not open is left
out of a page and counted in `meta.unreadable`; asked for by its key alone it is 422.

**Pages.** A page ends at its `limit`, or early at 16 MiB of records (a setting of the service; one record it has in any case). Where there is more,
`meta.next` is a cursor: send the same filter and `sort` with `options.next`, and whatever is created or deleted meanwhile, no record that was there
throughout is left out or comes twice. It is for this client, this schema and this question; anything else is 400. `meta.total` is then that of the first page.
A cursor is as fast on the last page as on the first; `offset` reads all that it leaves out. A history goes on by `offset`, as long as `offset` and `count` are
less than `total`.

**Aggregation.** `sum` of nothing is 0; `min`, `max` and `avg` of nothing are `null`. An average has at most 10 digits after the point, rounded
half to even. `group_by` takes up to 10 fields that are not JSON and not `encrypted`; a group by a hashed field is shown with the value of its
oldest record, one by a field in the clear with its normal form. Groups have an order of their own that does not change from page to page.

**Access policies.** A client under policies works with the schemas that these name, and does what they allow; else it is answered 401
(or 403 where the operation lists it) `access_denied`. A hidden field is unknown. One that is redacted or masked is shown so, named in
`meta.redacted_fields` (of a page, or of each record that a write answers with), and nothing can be asked of it. A record that the rows
of the policies leave out is not there; a write that would make it so is refused. What writes a redacted value, gives it another redacted value.

## Records without a schema of their own

`/api/records` keeps records of one fixed set of fields, in the schema `records` that every environment has: `body` and `precommit_body`
(encrypted), `profile_key`, `parent_key`, `service_key1` to `service_key5` and `key1` to `key25` (hashed; the operator may keep a `keyN` in the
clear, `records.plain`, and let parts of hashed ones be searched for, `records.partial_match`), `range_key1` to `range_key10` (integers) and
`decimal_key1` to `decimal_key20` (decimals), both in the clear. `key` is another name of `record_key`, `range_key` of `range_key1`.

- Every answer has all fields, `null` where there is no value.
- `country` has to be that of the instance: in bodies that are shown with it, and in paths.
- `version` is an integer of yours, kept as it is sent; where none is sent, it counts how often the record was written.
- Filters take these fields but for the bodies, and `version`, `created_at`, `updated_at`, `expires_at`; instants are compared by `$gt`, `$gte`, `$lt`
  and `$lte`. Sorted by are `range_keyN`, a `keyN` in the clear, `created_at`, `updated_at` and `expires_at`.

## Clients for hosted services

Under `/v2/storage/records/{country}` the same records are spoken of as clients made for hosted services of this kind do: with `x-env-id` in every
request, and `X-Encrypted-Storage: true` where the server has to seal. Without that field the client has sealed the record itself; keys are then
its hashes, and are kept and compared as they are. `version` and `is_encrypted` are what it says of the key that it used. The vault seals either
kind once more for itself. The file name of an upload stands in the head of its part.

## Sending again

With `Idempotency-Key` (any text of your own, up to 255 visible ASCII characters) a POST or DELETE that writes is carried out once: its
first answer is stored with the write, and answered again for 24 hours with `Idempotent-Replayed: true`. The same key with another
request, or while the first is being carried out, is 429 `idempotency_check_failed`. Refusals are not stored. An answer that shows what the
client may not see any more, by policies, rows or a filter endpoint of now, is not given again: 429 `idempotency_check_failed`, too.

`/webapi/…` is another name of `/api/…`. A body that does not arrive within a minute is 408; a method that an address does not take is
405 with `Allow`; a target of more than 16 KiB is 414 `uri_too_long`, a header field of more than 8190 bytes, or more than 128 of them, is 431 `header_too_large`. Every answer to a client tells how many
requests it may send, in `RateLimit` and `RateLimit-Policy`; more are 429 `too_many_requests` with `Retry-After`, and so are uploads of one client
at the same time beyond a number (`too_many_uploads`). Where the instance has a data firewall, requests from outside its country are 403 `outside_country`, whatever they ask for.
""".strip()

TAGS: Final[dict[str, str]] = {
    "Records": "Make, change, copy and end records of a schema.",
    "Record-based family": "`/api/records`: records of one fixed set of fields, in a schema that every environment has.",
    "Rehash": "New tokens for the values of records, for whoever keeps tokens of them outside the vault.",
    "Point of presence": "The records of `/api/records` for clients made for hosted services of this kind.",
    "Search": "Find records and add them up.",
    "Schemas": "Which fields records have, and how each is stored. For administrators.",
    "Functions": "Code of the operator that runs beside the vault.",
    "Attachments": "Files of records; they go when their record does.",
    "Access": "Tokens, and what others need to check them. Errors here are those of RFC 6749.",
    "Clients": "Who may get tokens. Administrators work with the clients of their own environment, those of `default` with all.",
    "Policies": "What clients may do with the records of a schema, and what they see of them. For administrators.",
    "Environments": "Keys, schemas, records, files and clients that never meet those of another. For administrators of `default`.",
    "Keys": "What seals the records and signs tokens: which keys there are, and fresh ones in their place. For administrators of `default`.",
    "Baits": "Records that nobody has a reason to look at: whoever does raises an alarm.",
    "About": "This document.",
}

_KEY: Final[dict[str, Any]] = {"type": "string", "minLength": 1}

#: Parameters of paths and queries: what they are, and their schema.
PARAMETERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "schema": (
        "The name of a schema.",
        {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$"},
    ),
    "country": (
        "The country of this instance, lower-case ISO code.",
        {"type": "string", "pattern": "^[a-z]{2}$"},
    ),
    "record_key": ("The primary key of a record, percent-encoded.", _KEY),
    "source": ("The key of the record that things are taken from.", _KEY),
    "destination": ("The key of the record that they are given to.", _KEY),
    "file_id": ("The identifier of an attachment.", _KEY),
    "client_id": ("The identifier of a client.", _KEY),
    "policy": (
        "The name of an access policy.",
        {"type": "string", "pattern": "^[A-Za-z0-9]{1,64}$"},
    ),
    "environment_id": ("The id of an environment.", _KEY),
    "dry_run": ("Only tell what would come of it.", {"const": "true"}),
    "records": ("With all records, their history and their attachments.", {"const": "delete"}),
    "name": (
        "The name of a function.",
        {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,63}$"},
    ),
    "next": ("Where to go on: `meta.next` of the page before. Nobody else can use it.", _KEY),
    "cascadeBy": (
        "A string field: records that hold a deleted key there are deleted too, and so on, as far as the client sees them.",
        {"type": "string"},
    ),
    "limit": (
        "How many entries; 100 unless said otherwise.",
        {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
    ),
    "offset": (
        "How many entries to leave out before them.",
        {"type": "integer", "minimum": 0, "maximum": 2147483647, "default": 0},
    ),
}

#: What each status means on this interface, but for those of success (specification, "Errors").
STATUSES: Final[dict[int, str]] = {
    201: "It is new.",
    202: "It has begun, and goes on in the background.",
    304: "It is what `If-None-Match` names, and so not sent again.",
    412: "What `If-Match` or `If-None-Match` asks does not hold; nothing was done.",
    206: "The part of the content that was asked for; `Content-Range` tells which.",
    400: "An invalid record, filter, option, parameter or body; an unknown schema.",
    401: "No access token, or one that is invalid or has expired; partial match on a field that has it off (`partial_match_disabled`); a file to be moved that the record does not have (`unknown_file`).",
    403: "The client may not do that; the request comes from outside the country (`outside_country`); for clone: nothing matches, or partial match on a field that has it off.",
    404: "There is no such record or file; no record matches.",
    408: "The body did not arrive in time.",
    409: "Another country than the instance's; a key or a file name that is used; a change that came in between; a schema that is being changed, or that holds records; an environment that holds records, or whose id was given before.",
    413: "The body is larger than the limit.",
    415: "Another content type than the operation takes.",
    416: "A range of bytes that the file does not have; `Content-Range` tells its length.",
    422: "Well-formed, but it cannot be carried out: a batch over its limit, records that do not open, a search that is too broad.",
    429: "Too many requests (`too_many_requests`) or uploads (`too_many_uploads`) of this client or address; the check of an `Idempotency-Key` failed.",
    500: "The service failed, or its store cannot be used at the moment (503); with `Retry-After` where it passes by itself.",
}
