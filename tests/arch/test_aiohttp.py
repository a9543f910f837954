"""aiohttp by its public names, but for a few inner ones in one file, on its two newest minor versions.

``make aiohttp`` runs this file and the tests of its connections on the minor version before.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.tree import ROOT, nodes, parsed, python_files, relative

#: The one file that knows inner names, and all of those.
KEEPER = "proxy/net/server.py"
INNER = {
    "_current_request", "_drain_helper", "_next_keepalive_close_time", "_parser", "_request_parser",
    "_waiter", "aiohttp.http_exceptions.HttpProcessingError", "aiohttp.http_exceptions.LineTooLong",
}  # fmt: skip

#: The modules that aiohttp documents.
PUBLIC = {"aiohttp", "aiohttp.abc", "aiohttp.typedefs", "aiohttp.web"}


def _members(kind: type[Any]) -> set[str]:
    names = {name for base in kind.__mro__ if base is not object for name in vars(base)}
    slots = {slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ())}
    return {name for name in names | slots if name[0] == "_" and name[:2] != "__"}


def _is_aiohttp(kind: type[Any]) -> bool:
    return kind.__module__.split(".")[0] == "aiohttp"


def _ancestors(kind: type[Any]) -> list[type[Any]]:
    return [base for base in kind.__mro__ if _is_aiohttp(base)]


def _inner_of_aiohttp() -> set[str]:
    """The private names of every class of aiohttp, those that ``__init__`` sets among them."""
    names: set[str] = set()
    for info in pkgutil.iter_modules(aiohttp.__path__):
        if info.name in {"pytest_plugin", "test_utils", "worker"}:
            continue
        module = importlib.import_module(f"aiohttp.{info.name}")
        for kind in vars(module).values():
            if inspect.isclass(kind) and _is_aiohttp(kind):
                names |= _members(kind)
        source = getattr(module, "__file__", None) or ""
        if source.endswith(".py"):
            names |= set(re.findall(r"self\.(_[a-z]\w*)", Path(source).read_text("utf-8")))
    return names


#: Without what every named tuple has; that is documented.
OF_AIOHTTP = _inner_of_aiohttp() - {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}


def _imports(path: Path) -> set[str]:
    """What a file imports from modules of aiohttp that are not documented."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aiohttp":
            found |= {
                f"{node.module}.{alias.name}"
                for alias in node.names
                if node.module not in PUBLIC or alias.name.startswith("_")
            }
        elif isinstance(node, ast.Import):
            found |= {
                alias.name
                for alias in node.names
                if alias.name.split(".")[0] == "aiohttp" and alias.name not in PUBLIC
            }
    return found


def _texts(node: ast.AST) -> set[str]:
    return {
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


def _inherited(path: Path) -> set[str]:
    """The inner names of aiohttp that a file's own classes derived from it use of themselves."""
    module: ModuleType = importlib.import_module(
        relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    found: set[str] = set()
    for node in parsed(path).body:
        if not isinstance(node, ast.ClassDef):
            continue
        ancestors = _ancestors(getattr(module, node.name))
        inner = {name for kind in ancestors for name in _members(kind)}
        found |= {
            one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)
        } & inner | _texts(node) & inner
    return found


def _foreign(path: Path) -> set[str]:
    """The inner names of aiohttp that a file which imports it uses of other objects."""
    return {
        node.attr
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and node.attr in OF_AIOHTTP
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        and not (isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()")
    }


def _speaks_aiohttp(path: Path) -> bool:
    text = path.read_text("utf-8")
    return "aiohttp" in text or "net.server" in text or "caller_connection" in text


FILES = [path for path in python_files("proxy") if _speaks_aiohttp(path)]


def test_inner_names_of_aiohttp_stand_in_one_file():
    used = {relative(path): _imports(path) | _inherited(path) | _foreign(path) for path in FILES}
    text = (ROOT / KEEPER).read_text("utf-8")
    names = re.search(r"^_PARSERS: Final = (\(.*\))$", text, re.MULTILINE)
    assert names is not None
    assert used.pop(KEEPER) | set(ast.literal_eval(names[1])) == INNER
    assert {name: inner for name, inner in used.items() if inner} == {}


def test_at_most_ten_of_them_are_needed_and_they_are_there():
    assert len(INNER) <= 10
    handler = _members(web.RequestHandler) & INNER
    assert {"_current_request", "_drain_helper", "_next_keepalive_close_time", "_waiter"} <= handler
    assert handler & {"_parser", "_request_parser"}


def test_no_name_of_ours_hides_an_inner_one():
    for path in FILES:
        module = importlib.import_module(
            relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        )
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == module.__name__ and _ancestors(kind):
                inner = {name for base in _ancestors(kind) for name in _members(base)}
                assert not inner & set(vars(kind).get("__slots__", ())), kind


def _minor(text: str) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", text)
    assert found is not None
    return int(found[1]), int(found[2])


def _locked(name: str) -> tuple[int, int]:
    text = (ROOT / "requirements" / name).read_text("utf-8")
    found = re.search(r"^aiohttp==(\S+)", text, re.MULTILINE)
    assert found is not None
    return _minor(found[1])


def test_the_two_newest_minor_versions_are_allowed_and_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = next(one for one in project["dependencies"] if one.startswith("aiohttp"))
    least, beyond = map(_minor, wanted.removeprefix("aiohttp").split(","))
    newest, before = _locked("runtime.txt"), _locked("aiohttp.txt")
    assert (newest[0], newest[1] - 1) == before
    assert least <= before < newest < beyond
    assert _minor(aiohttp.__version__) in {newest, before}


def test_this_file_sees_what_it_looks_for(tmp_path):
    (tmp_path / "one.py").write_text(
        "from aiohttp.web_protocol import RequestHandler\n\nprint(request._task)\n"
    )
    assert _imports(tmp_path / "one.py") == {"aiohttp.web_protocol.RequestHandler"}
    assert _foreign(tmp_path / "one.py") == {"_task"}
    assert _inherited(ROOT / KEEPER) >= {"_waiter", "_drain_helper"}
