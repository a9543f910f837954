"""The optional native code: ``_spans.c`` finds the places of one JSON object's values, spells the
words of tokens, and proves that values stand nowhere else.

Nothing needs it. Where it was compiled, bodies of one object are found and validated in one pass of
C instead of several of Python's own; whatever it is in doubt about goes the way of the Python code,
which is its oracle in ``tests/unit/redactor/json/test_native.py``. It is compiled with

    python -m proxy.redactor.json.native

which ``make native`` runs, and which needs a C compiler and the headers of Python.
"""

import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

#: The numbers of leaves in the order of their document, and behind the span of that theirs.
FoundLeaves = tuple[Sequence[int], Sequence[tuple[int, int]]]

#: By the names of an object's members, in their order: the numbers of the leaves among them, and
#: which members these are. ``None``: only Python can tell.
Layout = tuple[tuple[int, ...], tuple[int, ...]] | None

_FOLDER: Final = Path(__file__).parent
_SOURCE: Final = _FOLDER / "_spans.c"
_NAME: Final = "_spans.abi3.so"  # for every version of Python from 3.11 on


class FindLeaves(Protocol):
    """Finds the leaves of one shallow object whose names have a layout; ``None`` in any doubt."""

    def __call__(
        self, text: bytes, depth: int, layouts: dict[tuple[str, ...], Layout], /
    ) -> FoundLeaves | None: ...


CutTexts = Callable[
    [bytes, FoundLeaves, Sequence[str], bool],
    tuple[list[str | None], dict[str, str], list[bytes], list[bytes | memoryview]] | None,
]

#: A field, and where its value begins and ends.
FieldSpan = tuple[str, int, int]
#: By field what stands between the application and the caller: the token as it is written in JSON,
#: and the value.
Swaps = dict[str, tuple[bytes, bytes]]


class NativeCode(NamedTuple):
    """The functions of the extension."""

    find: FindLeaves
    #: of a text, its leaves, their names by number, and whether places may be empty: the texts of
    #: the leaves, the names by text, the texts as they are written, and the pieces around them;
    #: ``None``: a leaf is something else
    cut: CutTexts
    #: of an answer, its leaves, their names by number, that of the id, and whether empty texts are
    #: no values: the id as it is written, and the fields; ``None``: a field is no text
    answer_fields: Callable[
        [bytes, FoundLeaves, Sequence[str], int, bool], tuple[bytes | None, list[FieldSpan]] | None
    ]
    #: the answer with the values of these fields in place of their tokens; ``None``: others stand
    #: there, or it has very many
    put_back: Callable[[bytes, list[FieldSpan], Swaps], bytes | None]
    write62: Callable[[bytes], str]  #: as that of ``proxy.tokenization.common``
    write32: Callable[[bytes], str]
    #: of the words of leaves (``FastPathPlan``), the leaves, texts, raws and pieces of a body,
    #: the blocks of its tokens, what makes stored values, what makes other tokens, and what tells
    #: tokens by their form and for certain: the stored values by field, the swaps, which are among
    #: the pieces as well, and the next number; ``None``: in doubt
    tokens: Callable[..., tuple[dict[str, tuple[Any, ...]], Swaps, int] | None]
    #: of the words of leaves, the leaves, texts, raws and pieces of a body, the stored values by
    #: field, and what tells tokens: the stored values that stand there, and the swaps, as above;
    #: ``None``: others stand there, or it is in doubt
    unchanged: Callable[..., tuple[dict[str, tuple[Any, ...]], Swaps] | None]
    #: whether none of these values, each with its field, stands in a text (or from a place of it to
    #: another) or in what its base64 stands for; false in any doubt
    absent: Callable[..., bool]


def compile_into(folder: Path, *flags: str) -> Path:
    """The extension, compiled into a folder.

    Raises:
        OSError: there is no compiler.
        subprocess.CalledProcessError: it failed; with what it said in ``stderr``.
    """
    import shlex
    import subprocess
    import sysconfig

    extension = folder / _NAME
    config = sysconfig.get_config_vars()
    linker = shlex.split(f"{config.get('LDSHARED') or 'cc -shared'} {config.get('CCSHARED') or ''}")
    digest = f'-DSOURCE_DIGEST="{_digest()}"'
    headers = f"-I{sysconfig.get_path('include')}"
    new, new_digest = extension.with_suffix(".new"), folder / "_spans.sha256.new"
    command = [*linker, "-O3", "-Wall", *flags, digest, headers, str(_SOURCE), "-o", str(new)]
    subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # as Python itself was compiled
    new_digest.write_text(sha256(new.read_bytes()).hexdigest(), "ascii")
    new.replace(extension)  # a running process keeps the one that it has loaded
    new_digest.replace(_written_digest(extension))  # until then none of the two files is used
    return extension


def load_from(folder: Path) -> NativeCode | None:
    """The functions of an extension; ``None`` where there is none.

    Raises:
        ImportError: it cannot be used; with the reason. A damaged one is not even loaded: that
            would end the process.
    """
    extension = folder / _NAME
    if not extension.exists():
        return None
    try:
        content, written = extension.read_bytes(), _written_digest(extension).read_text("ascii")
        if sha256(content).hexdigest() != written:
            raise ImportError("it is not the file that was compiled")
        spec = spec_from_file_location("_spans", extension)
        if spec is None or spec.loader is None:
            raise ImportError("this Python loads no such files")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        code = NativeCode(*[getattr(module, name) for name in NativeCode._fields])
        if _digest() != module.SOURCE_DIGEST:
            raise ImportError("it was compiled from another source")
    except (OSError, ValueError, AttributeError, SystemError) as error:
        raise ImportError(str(error)) from error
    return code


def _written_digest(extension: Path) -> Path:
    """The file beside an extension that says what was compiled."""
    return extension.with_suffix(".sha256")


def _digest() -> str:
    return sha256(_SOURCE.read_bytes()).hexdigest()


def _load(folder: Path) -> tuple[NativeCode | None, str]:
    try:
        return load_from(folder), ""
    except ImportError as error:
        return None, str(error)


#: The native code, where it was compiled; and why what is there is not used.
native_code, unusable = _load(_FOLDER)
find_leaves: Final = native_code and native_code.find


def compile_in_place() -> int:
    """Compile the extension where it is looked for; status 1 and the reason where that fails."""
    from subprocess import CalledProcessError

    try:
        extension = compile_into(_FOLDER)
    except (OSError, CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        print(  # noqa: T201  # a command's own output
            "The native code was not compiled, and is not needed: "
            f"{reason[0] if reason else 'the compiler failed'}",
            file=sys.stderr,
        )
        return 1
    print(f"Compiled {extension.name}: the next start uses it.")  # noqa: T201  # as above
    return 0


if __name__ == "__main__":
    sys.exit(compile_in_place())
