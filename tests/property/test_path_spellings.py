"""Match wide: no spelling of a ruled path that some server would understand leads past its rule."""

from hypothesis import assume, example, given
from hypothesis import strategies as st

from proxy.errors import VaultError
from proxy.redactor.routing import Router
from proxy.redactor.rules import Match
from tests.support.rules import rules_of

RULES = rules_of(
    "{match: POST /api/contacts, create: note}",
    '{match: "PUT /api/contacts/{id}", update: note}',
    '{match: "PUT /api/contacts/{id}/notes/{note}", update: note}',
)
ROUTER = Router(RULES.operations, RULES.endpoints)

#: What is no UTF-8 where ASCII follows: some servers drop it.
FOREIGN = ["%FF", "%fe", "\xff", "%ED%A0%80", "%C3", "\xe2\x82", "%F0%9F"]

SEGMENT = st.text(alphabet="abcXYZ0189-_~", min_size=1, max_size=6)
PATHS = st.one_of(
    st.just(("POST", ("api", "contacts"))),
    SEGMENT.map(lambda ident: ("PUT", ("api", "contacts", ident))),
    st.tuples(SEGMENT, SEGMENT).map(
        lambda ids: ("PUT", ("api", "contacts", ids[0], "notes", ids[1]))
    ),
)


def escaped(character: str, how: int) -> str:
    code = f"{ord(character):02x}"
    return [character, f"%{code}", f"%{code.upper()}", f"%25{code}", f"%25{code.upper()}"][how]


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    return "".join(
        escaped(character, draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))) for character in text
    )


@st.composite
def obfuscated(draw: st.DrawFn) -> tuple[str, bytes, tuple[str, ...]]:
    """A method and target that a lenient server reads as a ruled path, and the segments of that
    path.
    """
    method, segments = draw(PATHS)
    # One server decodes once or twice, before or after it splits: the tricks of one target belong
    # together.
    slashes = st.sampled_from(
        draw(
            st.sampled_from(
                [["/"], ["/", "//"], ["/", "\\"], ["/", "%2f", "%2F"], ["/", "%252f"], ["/", "%5c"]]
            )
        )
    )
    detours = st.sampled_from(
        draw(
            st.sampled_from(
                [
                    [""], ["", "./"], ["", "x/../"], ["", "%2e/"], ["", "x/%2e%2E/"],
                    ["", "x/..;p/"], ["", "x/%252e%252e/"], ["", "x/.%ff./"],
                ]
            )
        )
    )  # fmt: skip
    foreign = st.sampled_from(draw(st.sampled_from([[""], [""], ["", *FOREIGN], ["", "%25fe"]])))
    parameters = st.sampled_from(draw(st.sampled_from([[""], ["", ";v=1"], ["", "%3bv"]])))
    target = ""
    for segment in segments:
        cut = draw(st.integers(0, len(segment)))
        parts = draw(spelled(segment[:cut])), draw(foreign), draw(spelled(segment[cut:]))
        target += draw(slashes) + draw(detours) + "".join(parts) + draw(parameters)
    target = "/" + target.lstrip("/") if target.startswith("//") and draw(st.booleans()) else target
    assume(target.startswith("/"))
    target += draw(st.sampled_from(["", "/", "?a=b", "?x=/y/../z"]))
    return draw(st.sampled_from([method, method.lower()])), target.encode("latin-1"), segments


@given(obfuscated())
@example(("POST", b"/api/x/..%2fcontacts", ("api", "contacts")))
@example(("PUT", b"/api/contacts/x/..;p/17", ("api", "contacts", "17")))
def test_every_spelling_of_a_ruled_path_hits_its_rule_or_is_refused(case):
    method, target, segments = case
    raw = bytes(target)
    try:
        found = ROUTER.match(method, "h", target)
    except VaultError:
        return  # two readings, two rules: refused is as good as caught
    assert isinstance(found, Match)
    assert method.upper() in found.operation.methods
    assert len([part for part in found.operation.template.split("/") if part]) == len(segments)
    assert target == raw


@given(st.text("abc/.", max_size=12), st.sampled_from(FOREIGN), st.text("abc/.", max_size=12))
def test_a_path_with_bytes_that_are_no_text_passes_where_no_reading_hits_a_rule(
    before, foreign, after
):
    target = f"/static/{before}{foreign}{after}".encode("latin-1")
    assume(b".." not in target)
    assert ROUTER.match("POST", "h", target) is None
    assert ROUTER.endpoint("h", target) is RULES.endpoints[0]


@given(st.binary(max_size=60), st.sampled_from(["GET", "POST", "PUT", "x"]))
@example(b"%%%zz%2", "GET")
@example(b"/%", "GET")
@example(b"//", "POST")
def test_any_target_is_answered_or_refused_and_never_breaks(target, method):
    try:
        ROUTER.match(method, "h", target)
        ROUTER.endpoint("h", target)
    except VaultError:
        pass
