from proxy.redactor.load.operation_keys import OPERATION_BLOCK, REQUEST
from proxy.redactor.load.value_forms import KeywordForm
from proxy.redactor.rules import Verb
from proxy.redactor.words import Absent, Empty, Nulls, OtherKinds, OwnToken
from tests.support.table import table


@table(
    ("key", "words"),
    [
        ("absent", Absent),
        ("nulls", Nulls),
        ("empty", Empty),
        ("own_token", OwnToken),
        ("other_kinds", OtherKinds),
    ],
)
def test_words_are_those_of_the_compiled_rules(key, words):
    form = next(known.form for known in REQUEST.keys if known.name == key)
    assert isinstance(form, KeywordForm)
    assert sorted(form.choices) == sorted(str(word) for word in words)


def test_each_verb_is_a_key_of_an_operation():
    assert {str(verb) for verb in Verb} < {key.name for key in OPERATION_BLOCK.keys}
