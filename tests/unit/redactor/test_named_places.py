from proxy.model.schema import PathStep
from proxy.redactor.load import load_text
from proxy.redactor.named_places import OBJECT, PASSED, named_places, spared_paths
from tests.support.exchanges import rule_text
from tests.support.table import table

EACH = PathStep.EACH


@table(
    ("operation", "named", "spared"),
    [
        (
            '{match: PUT /p, update: p, id: $._id, request: {object: $.d, values: {$.x: {pass: true}}}}',
            {("d", OBJECT, "name"), ("_id",), ("x", PASSED)},
            {("d", "name"), ("d", EACH, "name"), ("_id",), ("id",), ("x",)},
        ),
        (
            "{match: PUT /p, update: p, id: $.id, when: {$.type: person}}",
            {(OBJECT, "name"), (OBJECT, "id")},
            {("name",), ("_id",), (EACH, "_id"), ("type",), ("_type",)},
        ),
        (
            "{match: POST /p, read: p, request: {values: {$.q.email: {field: email}}}, response: {each: '$[*]', id: $.id}}",
            {("q", "email")},
            {("q", "email")},
        ),
    ],
)  # fmt: skip
def test_named_places_and_what_may_be_called_nearly_so(operation, named, spared):
    one = load_text(rule_text(operation)).operations[0]
    assert named <= set(named_places(one))
    assert spared <= set(spared_paths(one))
    assert not any(path[-1] in ("_name", "_q") for path in spared_paths(one))
