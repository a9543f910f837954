"""The table of parsers whose costs are tried names every function that reads a text."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

import proxy
from tests.conformance.test_parser_costs import PARSERS

#: Functions that read a text and need no line there, with the reason.
EXEMPT: Final = {
    "config.parsers:origins": "a setting: every setting stands in the table by its name",
    "crypto.master_key:read_key_file": "takes the path of a file",
    "model.legacy_dialect:field_of_name": "looks up one name",
    "redactor.load.loader:load_text": "a whole rule file: YAML is read by its library, at start and reload, and its texts by the parsers above",
    "redactor.load.yaml_tree:read_tree": "as load_text",
    "redactor.ambiguity:steps_to": "is given documents of JSON that were read before",
    "tokenization.common:read32": "is given words of its own alphabet by the patterns of the token formats",
    "tokenization.common:read62": "as read32",
    "tokenization.normalize:normalize": "stands in the table by each kind",
    "tokenization.normalize:normalizer": "returns normalize of one kind",
    "crypto.public_keys:parse_certificate": "is given a certificate of the settings, at start and when its file changes",
    "crypto.public_keys:parse_trust": "as parse_certificate",
    "net.http1.head:parse_request_line": "the first line of what parse_request_head reads, by the same function",
    "cli.health:readiness": "is given an address by who works at the command line",
    "objectstore.bucket_path:parse_bucket_path": "is given an argument of the command line",
    "redactor.graphql.answers:answered_at": "is given a document of JSON that was read before",
    "objectstore.s3:parse_bucket_address": "is given a setting, at start",
    "redactor.load.parsers:parse_carrier": "is given a word of a rule file, at start and reload",
    "redactor.tools.public_words:decoded_text": "base64 of a recording, read by its library, at the command line",
    "api.request:parsed": "is parse, in a thread for what is large",
}  # fmt: skip


def _readers() -> Iterator[str]:
    """Public functions of the package by whose name and first parameter a text is read."""
    for found in pkgutil.walk_packages(proxy.__path__, "proxy."):
        if found.name.endswith("__main__") or found.name.startswith("proxy.demo"):
            continue
        for name, value in vars(importlib.import_module(found.name)).items():
            if (
                not inspect.isfunction(value)
                or value.__module__ != found.name
                or not name.startswith(_VERBS)
            ):
                continue
            first = next(iter(inspect.signature(value).parameters.values()), None)
            if first is not None and str(first.annotation).split(" |")[0] in _TEXTS:
                yield f"{found.name.removeprefix('proxy.')}:{name}"


_VERBS: Final = (
    "read", "parse", "decode", "load", "steps", "fault_of", "split", "named", "answer", "origin",
    "authority", "normalize",
)  # fmt: skip
_TEXTS: Final = (str(str), str(bytes), "str", "bytes", str(Any), "bytes | memoryview")


def test_every_function_that_reads_a_text_stands_in_the_table():
    known = {name.partition(" ")[0] for name in PARSERS}
    assert sorted(set(_readers()) - known - EXEMPT.keys()) == []
