from proxy.redactor.rules import RuleSet
from tests.support.rules import faults_of, operation_of, rules_of, with_operations
from tests.support.table import table

DAY = 86_400_000


def keeps(*operations: str) -> list[int | None]:
    rules: RuleSet = rules_of(*operations)
    return [one.keep for one in rules.operations]


@table(("words", "keep"), [("", None), (", keep: 30d", 30 * DAY), (", keep: 1y", 365 * DAY)])
def test_a_delete_says_how_long_values_stay(words: str, keep: int | None) -> None:
    assert operation_of(f'{{match: "DELETE /n/{{id}}", delete: note{words}}}').keep == keep


def test_values_stay_until_another_delete() -> None:
    marked = '{match: "DELETE /n/{id}", delete: note, keep: until_deleted}'
    assert keeps(marked, '{match: "DELETE /bin/{id}", delete: note}') == [0, None]


def test_that_other_delete_may_be_a_field_of_graphql() -> None:
    marked = '{match: "DELETE /n/{id}", delete: note, keep: until_deleted}'
    fields = "purge: {delete: note, key: id}, bin: {delete: note, key: id, keep: 3d}"
    rules = rules_of(marked, f"{{match: POST /g, graphql: {{{fields}}}}}")
    assert [one.operation.keep for one in rules.operations[1].graph] == [None, 3 * DAY]


@table(
    ("operation", "fault"),
    [
        ('match: "DELETE /n/{id}", delete: note, response: {complete: true}', "a success means"),
        (
            'match: POST /n, delete: note, id: "$.ids[*]", response: {id: "$.done[*]", complete: true}',
            "the answer names the records that were changed",
        ),
    ],
)
def test_a_change_of_several_is_complete_where_nothing_else_says_it(operation, fault):
    (found,) = faults_of(with_operations(f"{{{operation}}}"))
    assert found.text.startswith(fault)
