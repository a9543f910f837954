"""What any released version wrote, every later one must read: known answers of our own formats
(append-only).
"""

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from proxy.audit.chain import chain_lines
from proxy.audit.chain import parse_line as read_line
from proxy.audit.services import record_ids
from proxy.crypto.key_sources import open_source
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.crypto.stream import SEALED_CHUNK
from proxy.model.record import RehashTokens
from proxy.model.schema import Value
from proxy.tokenization import PERSISTENT, SHAPES, make_shape, strategy
from proxy.tokenization.normalize import FIELD_KINDS, normalize
from proxy.vault.body import RecordBody, TokenizedValue, pack, unpack
from tests.support.table import table
from tests.support.tree import ROOT

Answer = dict[str, Any]

ANSWERS: list[Answer] = json.loads((ROOT / "tests/vectors/domicile.json").read_text("utf-8"))
_FIRST = ANSWERS[0]
KEYSET = Keyset.unwrap(bytes.fromhex(_FIRST["blob"]), MasterKey(bytes.fromhex(_FIRST["master"])))


def keyset(answer: Answer) -> None:
    master = MasterKey(bytes.fromhex(answer["master"]))
    assert master.id == answer["master_id"]
    read = Keyset.unwrap(bytes.fromhex(answer["blob"]), master)
    assert read.environment == answer["environment"]
    assert Keyset.unwrap(read.wrap(master), master).hasher("x")(b"") == KEYSET.hasher("x")(b"")


def sealed(answer: Answer) -> None:
    body, salt, context = (bytes.fromhex(answer[name]) for name in ("sealed", "salt", "context"))
    assert KEYSET.aead().open(body, salt, context) == bytes.fromhex(answer["plain"])


def stream(answer: Answer) -> None:
    salt, context, prefix = (bytes.fromhex(answer[name]) for name in ("salt", "context", "prefix"))
    plain = bytes.fromhex(answer["plain"]) * answer["times"]
    sealer = KEYSET.streams().sealer(salt, context, prefix)
    first = bytes(sealer.update(plain))
    parts = [
        *(first[at : at + SEALED_CHUNK] for at in range(0, len(first), SEALED_CHUNK)),
        sealer.finish(),
    ]
    whole = sealer.header + b"".join(parts)
    assert answer.get("sealed", whole.hex()) == whole.hex()
    assert answer.get("sha256", sha256(whole).hexdigest()) == sha256(whole).hexdigest()
    opener = KEYSET.streams().opener(sealer.header, salt, context)
    opened = [
        opener.chunk(number, part, last=number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]
    assert b"".join(opened) == plain


def hashed(answer: Answer) -> None:
    assert KEYSET.hasher(*answer["purpose"])(answer["message"].encode()).hex() == answer["digest"]


def block(answer: Answer) -> None:
    keys, pair = KEYSET.field_keys(answer["schema"], "any"), (answer["rid"], answer["number"])
    assert keys.block(*pair).hex() == answer["block"]
    assert keys.open_block(bytes.fromhex(answer["block"])) == pair
    assert keys.narrow_block(*pair) == int(answer["narrow"], 16)
    assert keys.open_narrow_block(int(answer["narrow"], 16)) == pair


def prf(answer: Answer) -> None:
    keys = KEYSET.field_keys(answer["schema"], answer["field"])
    assert keys.prf(answer["text"], answer["length"]).hex() == answer["out"]


def permute(answer: Answer) -> None:
    keys = KEYSET.field_keys(answer["schema"], answer["field"])
    assert keys.permute(answer["digits"], answer["tweak"].encode()) == answer["out"]


def sealed_token(answer: Answer) -> None:
    tokenizer = make_shape(answer["shape"], answer["options"]).bind(
        KEYSET.field_keys("contact", "email"), "text", ""
    )
    pair = (answer["rid"], answer["number"])
    assert tokenizer.identify(answer["token"]) == pair
    assert tokenizer.mint(Value("x"), *pair).text == answer["token"]


def same_token(answer: Answer) -> None:
    keys = KEYSET.field_keys("contact", "email")
    tokenizer = make_shape(answer["shape"], answer["options"]).bind(
        keys, answer["kind"], answer["region"]
    )
    assert tokenizer.mint(Value(answer["value"]), 1, 1).text == answer["token"]


def rehashed(answer: Answer) -> None:
    keys = KEYSET.rehash_keys(answer["dtk"], "records", answer["field"])
    make = strategy(answer["strategy"], answer["options"]).bind(keys, answer["region"])
    assert make(Value(answer["value"])).text == answer["token"]


def normal(answer: Answer) -> None:
    assert normalize(answer["kind"], answer["text"], answer["region"]) == answer["normal"]


def audit_line(answer: Answer) -> None:
    after, mac = (answer["n"], answer["prev"].encode()), KEYSET.hasher("audit", "chain")
    line, *_ = chain_lines(mac, after, answer["at"].encode(), [answer["body"].encode()])
    assert line.decode() == answer["line"]
    found = read_line(line)
    assert found is not None
    assert found.genuine(mac)


def audit_mark(answer: Answer) -> None:
    mark = record_ids(KEYSET.hasher("audit", "record"))
    assert mark(answer["environment"], answer["schema"], answer["key"]) == answer["mark"]


def body(answer: Answer) -> None:
    plain = bytes.fromhex(answer["plain"])
    read = unpack(plain)
    if "values" in answer:
        values = {
            name: tuple(TokenizedValue(*one) for one in several)
            for name, several in answer["values"].items()
        }
        assert read == RecordBody(values, answer["following"])
        assert pack(read) == plain
    else:
        written = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal).decode(plain)
        assert read.fields == written["f"]
        assert (read.action.value, read.by, read.at) == (
            answer["action"],
            answer["by"],
            answer["at"],
        )
        tokens = msgspec.convert(written.get("k"), RehashTokens | None)
        assert (read.tokens, read.eras, read.key) == (tokens, written.get("e"), written.get("y"))
        assert unpack(pack(read)) == read


CHECKS: dict[str, Callable[[Answer], None]] = {
    "keyset": keyset, "sealed": sealed, "stream": stream, "hash": hashed, "block": block,
    "prf": prf, "permute": permute, "sealed token": sealed_token, "same token": same_token,
    "rehashed": rehashed, "normal": normal, "audit line": audit_line, "audit mark": audit_mark,
    "body": body,
}  # fmt: skip


@table("answer", [a for a in ANSWERS if a["what"] != "keyfile"])  # fmt: skip
def test_what_was_written_still_reads(answer):
    CHECKS[answer["what"]](answer)


@pytest.mark.parametrize(
    "answer", [a for a in ANSWERS if a["what"] == "keyfile"], ids=lambda a: a["since"]
)
def test_a_key_that_was_kept_still_loads_from_file_and_environment(answer, tmp_path, monkeypatch):
    path = tmp_path / "keys.json"
    path.write_text(answer["content"])
    path.chmod(0o600)
    assert open_source(f"file://{path}").load().id == answer["id"]
    key = json.loads(answer["content"])["key"]
    assert len(base64.b64decode(key)) == 32
    monkeypatch.setenv("DOMICILE_TEST_KEY", key)
    assert open_source("env:DOMICILE_TEST_KEY").load().id == answer["id"]


def test_there_are_answers_of_every_kind_and_shape_with_keys():
    assert {answer["what"] for answer in ANSWERS} == {*CHECKS, "keyfile"}
    assert {answer["shape"] for answer in ANSWERS if answer["what"] == "same token"} == {
        name for name in SHAPES if "same" in SHAPES[name].options
    }
    assert {
        answer["strategy"] for answer in ANSWERS if answer["what"] == "rehashed"
    } >= PERSISTENT.keys()
    assert {
        answer["kind"] for answer in ANSWERS if answer["what"] == "normal"
    } == FIELD_KINDS.keys()
