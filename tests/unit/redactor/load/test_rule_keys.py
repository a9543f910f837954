from proxy.redactor.load import rule_keys
from proxy.redactor.load.rule_keys import blocks
from proxy.redactor.load.value_forms import Block, KeywordForm
from proxy.redactor.rules import BodyLimits, OnError, Unmatched
from proxy.tokenization import FIELD_KINDS, PERSISTENT, SHAPES, SYNONYMS


def choices(block: Block, key: str) -> list[str]:
    form = next(known.form for known in block.keys if known.name == key)
    assert isinstance(form, KeywordForm)
    return list(form.choices)


def test_blocks_come_once_each_from_the_outside_in():
    names = [block.name for block in blocks()]
    assert names[0] == "rule file"
    assert len(names) == len(set(names))
    assert {
        "endpoint",
        "limits",
        "entity",
        "field",
        "token",
        "operation",
        "request",
        "response",
        "parameter",
        "on_error",
        "test",
    } <= set(names)


def test_no_key_is_both_supported_and_not_supported_yet():
    for block in blocks():
        assert not {key.name for key in block.keys} & set(block.later)


def test_words_are_those_of_the_compiled_rules():
    assert choices(rule_keys.ENDPOINT, "unmatched") == [str(word) for word in Unmatched]
    assert choices(rule_keys.FIELD_BLOCK, "kind") == list(FIELD_KINDS)


def test_keys_of_limits_and_errors_are_those_of_the_compiled_rules():
    assert [key.name for key in rule_keys.LIMITS_BLOCK.keys] == list(BodyLimits.__slots__)
    errors = {key.name for key in rule_keys.ON_ERROR.keys} - {"vault_down"}
    assert errors == {name for name in OnError.__slots__ if not name.startswith("vault_down")}


def test_stated_defaults_are_the_real_ones():
    stated = {
        key.name: key.default
        for key in (
            *rule_keys.LIMITS_BLOCK.keys,
            *rule_keys.ON_ERROR.keys,
            *rule_keys.VAULT_DOWN.keys,
        )
    }
    assert stated["body"] == f"{BodyLimits().body // 2**20}MiB"
    assert stated["inflated"] == f"{BodyLimits().inflated // 2**20}MiB"
    for name in ("json_depth", "form_fields"):
        assert stated[name] == str(getattr(BodyLimits(), name))
    for name in (
        "unreadable_body",
        "ambiguous_json",
        "too_large",
        "field_absent",
        "unknown_token",
        "upstream_not_2xx",
    ):
        assert stated[name] == str(getattr(OnError(), name))
    assert stated["write"] == str(OnError().vault_down_write)
    assert stated["read"].startswith("tokens; in pages, texts, exports and streams 503")


def test_every_shape_and_every_option_may_be_written():
    assert choices(rule_keys.TOKEN, "shape") == [*SHAPES, *SYNONYMS, *PERSISTENT]
    options = {key.name for key in rule_keys.TOKEN.keys} - {"shape", "else"}
    assert options == {option for parser in SHAPES.values() for option in parser.options}
