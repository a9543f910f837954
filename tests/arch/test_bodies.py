"""Every record has one body: few places ask whose it is, and each of them is known."""

import ast

from tests.support.tree import PACKAGE, nodes, python_files, relative

#: Places of the package that ask whether the proxy or a caller wrote a record. Only falls.
MOST = 5

#: What tells the one from the other: the question itself, and the fields that only callers write.
QUESTIONS = {"collects", "is_collected"}
BODIES = {"body", "content"}


def _asks(node: ast.AST) -> bool:
    """Whether a node refers to a question (a call of it, or the function handed on)."""
    if isinstance(node, ast.Attribute):
        return node.attr in QUESTIONS
    if isinstance(node, ast.Call):
        return (
            isinstance(node.func, ast.Name)
            and node.func.id == "isinstance"
            and any(
                isinstance(part, ast.Name) and part.id in {"Hosted", "RecordBody"}
                for part in ast.walk(node)
            )
        )
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        tests = [node.test]
    elif isinstance(node, ast.BoolOp):
        tests = node.values
    return any(_is_fields(test) for test in tests)


def _is_fields(test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    return (
        isinstance(test, ast.Attribute)
        and test.attr == "fields"
        and isinstance(test.value, ast.Name)
        and test.value.id in BODIES
    )


def test_few_places_ask_whose_a_record_is() -> None:
    places = [
        f"{relative(path)}: {ast.unparse(node)[:60]}"
        for path in python_files("proxy")
        if "vault" in path.relative_to(PACKAGE).parts and path.name != "body.py"
        for node in nodes(path)
        if _asks(node)
    ]
    assert 0 < len(places) <= MOST, "\n".join(places)
