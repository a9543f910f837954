"""Nothing grows past what one can read at once: files, functions, parameters, nesting."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.tree import parsed, python_files, relative

SOURCE_LINES = 400
TEST_LINES = 600
FUNCTION_LINES = 60
PARAMETERS = 5
NESTING = 3

#: ``file`` or ``file::function`` that may exceed a limit, each with its reason.
EXCEPTIONS: dict[str, str] = {}

_BLOCKS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar,
    ast.Match,
)  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Function(NamedTuple):
    """One function or method; ``in_class`` says that its first parameter is the object."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    in_class: bool


def functions(path: Path) -> Iterator[Function]:
    """Every function of a file, methods and inner ones too; ``file::Class.method``."""

    def walk(node: ast.AST, inside: str, in_class: bool) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FUNCTIONS):
                name = f"{inside}{child.name}"
                yield Function(f"{relative(path)}::{name}", child, in_class)
                yield from walk(child, f"{name}.", False)
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{inside}{child.name}.", True)
            elif not isinstance(child, ast.expr):  # no expression holds a function with a name
                yield from walk(child, inside, in_class)

    return walk(parsed(path), "", False)


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from ``def`` to the last one, the docstring not counted: explaining is free."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return total
    text = function.body[0]
    return total - ((text.end_lineno or text.lineno) - text.lineno + 1)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, in_class: bool) -> int:
    """Parameters that a caller gives; ``self`` and ``cls`` are not among them."""
    given = function.args
    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    count += (given.vararg is not None) + (given.kwarg is not None)
    static = any(
        isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list
    )
    return count - (in_class and not static)


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Deepest block inside block.

    ``elif`` is no level of its own, and an inner function starts anew.
    """
    deepest = depth
    for name, children in ast.iter_fields(node):
        for child in children if isinstance(children, list) else [children]:
            if not isinstance(child, ast.AST) or isinstance(
                child, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
            ):
                continue
            chained = (
                isinstance(node, ast.If)
                and name == "orelse"
                and isinstance(child, ast.If)
                and len(children) == 1
            )
            deeper = isinstance(child, _BLOCKS) and not chained
            deepest = max(deepest, nesting(child, depth + deeper))
    return deepest


SOURCES = python_files("proxy", "bench")
TESTS = python_files("tests")


@cache
def too_large() -> dict[str, str]:
    """By file or function what exceeds its limit; of tests nesting and parameters are free."""
    over: dict[str, str] = {}
    tests = set(TESTS)
    for path in SOURCES + TESTS:
        test = path in tests
        limit = TEST_LINES if test else SOURCE_LINES
        if (lines := len(path.read_text("utf-8").splitlines())) > limit:
            over[relative(path)] = f"{lines} lines, at most {limit}"
        for f in functions(path):
            if (lines := length(f.node)) > FUNCTION_LINES:
                over[f.name] = f"{lines} lines: make it fit on a page"
            elif not test and (count := parameters(f.node, f.in_class)) > PARAMETERS:
                over[f.name] = f"{count} parameters: make a data class of them"
            elif not test and (depth := nesting(f.node)) > NESTING:
                over[f.name] = f"{depth} levels of nesting, at most {NESTING}"
    return over


def test_nothing_is_larger_than_one_can_read_at_once():
    assert {name: why for name, why in too_large().items() if name not in EXCEPTIONS} == {}


def test_no_exception_outlives_its_reason():
    assert [name for name in EXCEPTIONS if name not in too_large()] == []
    assert all(reason.strip() for reason in EXCEPTIONS.values())


def test_the_measures_measure(tmp_path):
    code = '''
class A:
    def method(self, a, b=1, *rest, key, **more):
        """One.

        Three lines of text.
        """
        if a:
            pass
        elif b:
            for _ in rest:
                with key:
                    while more:
                        pass

    @staticmethod
    def static(a):
        def inner():
            if a:
                pass
'''
    tree = ast.parse(code)
    method, static, inner = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    assert (length(method), parameters(method, True), nesting(method)) == (8, 5, 4)
    assert (parameters(static, True), nesting(static), nesting(inner)) == (1, 0, 1)
