import html
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from string import ascii_letters, digits
from urllib.parse import unquote

from proxy.model.schema import Value
from proxy.redactor import pages, restore
from proxy.redactor.restore import EscapingKinds
from tests.support.table import table

T = "TOKEN"


def allowed(page: str) -> bool:
    """Whether a value may stand where the page has its token."""
    raw = page.encode()
    at = raw.index(T.encode())
    return all(end <= at or at + len(T) <= start for start, end, *_ in pages.acting(raw))


@table(
    "page",
    [
        T,
        f"<p>{T}</p>",
        f"<p\n class='a>b' >{T}",
        f"a < b {T} <3",
        f'<input value="{T}">',
        f"<input type=text VALUE = '{T}'/>",
        f"<input value={T}>",
        f"<input disabled value={T} x>",
        f'<img alt="{T}" src="x">',
        f'<p onclick="f(1)" title="<b {T}">',
        f"<!-- {T} -->",
        f"<!-- <a onclick='{T}'> -->",
        f"<!--> {T}",
        f"<!-- x --!> {T}",
        f"<textarea><a onclick='{T}'></textarea>",
        f"<title>{T}</title>",
        f"<textarea></textareax>{T}",
        f"<script>if (a < b) x = '</'</script >{T}",
        f"<style>a>b</style>{T}",
        f"</p onclick='x'>{T}",
    ],
)
def test_a_value_may_stand_where_it_is_only_shown(page):
    assert allowed(page)


@table(
    "page",
    [
        f'<a href="{T}">',
        f"<a href={T}>",
        f"<a onclick=\"f('{T}')\">",
        f'<a title="a>b" onclick="{T}">',
        f"<a title='a>b\"' onclick='{T}'>",
        f'<a b"c onclick="{T}">',
        f'<a title=x"> onclick="{T}',
        f"<a ={T}>",
        f"<{T}>",
        f"<a {T}=x>",
        f"<a value{T}=x>",
        f'<a value=""{T}>',
        f'<p style="x:{T}">',
        f'<iframe srcdoc="{T}">',
        f"<p data-x='{T}'>",
        f"<script>x = '{T}'</script>",
        f"<SCRIPT>x = '{T}'",
        f"<script>'<!--' + '{T}'</script>",
        f"<style>{T}</style>",
        f"<noscript>{T}</noscript>",
        f"<plaintext></plaintext>{T}",
        f"<a value='x' onclick='{T}'>",
        f"<!-- a --><a onclick='{T}'>",
        f"<textarea></textarea><a onclick='{T}'>",
        f"<a/onclick='{T}'>",
        f"<a value\n=\n'x'onclick='{T}'>",
    ],
)
def test_it_may_not_stand_where_it_acts(page):
    if page.startswith("<a title=x"):
        # the quote belongs to an unquoted value: the tag ends before the handler
        assert allowed(page)
    else:
        assert not allowed(page)


def test_stretches_come_in_order_and_apart():
    page = b"<a href='x' title='y' z>t<script>s</script><input value=1>"
    spans = [(place.start, place.end) for place in pages.acting(page)]
    assert spans == sorted(spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    kept = "".join(
        chr(byte)
        for at, byte in enumerate(page)
        if not any(start <= at < end for start, end in spans)
    )
    assert kept == "'y't1"


EVIL = "\"'><script>alert(1)</script> onx=1 &amp;\n`=\\ Ann \u00e5\U0001f600"


@table(
    "page",
    [
        "<p>{}</p>",
        '<p><input value="{}">',
        "<p><input value='{}'>",
        "<p><input value={}>",
        "<p><textarea>{}</textarea>",
    ],
)
def test_no_value_becomes_markup(page):
    tags: list[str] = []
    names: list[str] = []
    seen: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)
            names.extend(name for name, _ in attrs)
            seen.extend(value or "" for _, value in attrs)

        def handle_data(self, data):
            seen.append(data)

    reader = Reader()
    reader.feed(page.format(pages.text(EVIL).decode()))
    reader.close()
    assert len(tags) == page.count("<") - page.count("</")
    assert names in ([], ["value"])
    assert EVIL in "".join(seen)


def test_signs_that_no_reference_means_are_read_as_they_are():
    """A name that was once read in the wrong charset (``\xc3\x85sa``) is shown and saved as it is."""
    value = "".join(map(chr, range(0x80, 0x100)))
    assert html.unescape(pages.text(value).decode()) == value


def test_a_written_value_holds_nothing_that_any_context_gives_a_meaning():
    assert not set(pages.text(EVIL)) - set(
        b"&#;0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    )


# ---------------------------------------------------------------------- what ``restore: html`` opens


def written(page: str, value: str = EVIL) -> str | None:
    """How a value is written in place of the token; ``None`` where it keeps its place."""
    raw = page.encode()
    kept = restore.candidates(EscapingKinds.HTML, raw, [re.compile(T)], {}, wide=True)
    edits = restore.rewrite(EscapingKinds.HTML, kept, {T: Value(value)})
    return edits[0][2].decode() if edits else None


@table("page", [f'<a href="mailto:{T}">', f"<a href='mailto:{T}?subject=x'>", f"<a href=tel:{T}>"])
def test_an_address_of_a_person_gets_the_value_percent_encoded(page):
    text = written(page)
    assert text is not None
    assert unquote(text) == EVIL
    assert not set(text) - set("%@-._~" + ascii_letters + digits)


@table(
    "page",
    [
        f'<script type="application/json">{{"a": "{T}"}}</script>',
        f'<script type=application/ld+json>[-1.5e3, true, "\\"", "{T}"]</script>',
        f'<div data-props="{{&quot;a&quot;:&quot;\\&quot;&quot;,&quot;b&quot;:&quot;{T}&quot;}}">',
        f"<script>/* it's */ x = a / b; // it's\ny = /['\"]/; z = `'`; w = {{'a': '{T}'}}</script>",
        f"<script><!-- it's\nif (n < 2 && n - 1) f((1 + 2) / 3, \"it's\", '{T}')\n//--></script>",
        f'<script>window.state = {{"a": "{T}"}}</script>',
        f"<script type='module'>f('{T}')</script>",
        f'<div data-props=\'{{"a": "{T}"}}\'>',
    ],
)
def test_json_in_a_page_gets_the_value_with_the_escapes_of_json(page):
    text = written(page)
    assert text is not None
    assert json.loads(f'"{text}"') == EVIL
    assert not set(text) - set("\\" + ascii_letters + digits)


@table("page", [f'<p data-name="{T}">', f"<meta content='{T}'>", f"<time datetime={T}>"])
def test_an_attribute_that_is_nothing_but_the_token_gets_the_value_as_text(page):
    text = written(page)
    assert text is not None
    assert html.unescape(text) == EVIL


@table(
    "page",
    [
        f'<a href="/find?q={T}">',
        f'<a href="javascript:mailto:{T}">',
        f"<a onclick=\"f('{T}')\">",
        f"<p x-data=\"{{a: '{T}'}}\">",
        f'<p style="x:{T}">',
        f"<iframe srcdoc='{T}'>",
        f'<p data-url="/people/{T}">',
        f"<script>f({T})</script>",
        f"<script>f('{T}\")</script>",
        f"<script>f('to {T}')</script>",
        f"<script>e.innerHTML = '<input value=\"{T}\">'</script>",
        f"<script>e.innerHTML = \"<input onclick=f('{T}')>\"</script>",
        f"<script>e.innerHTML = '<i title=\\'\" + x, \"{T}\", y'</script>",
        f"<script>x = /'/; e.innerHTML = '<input value=\"{T}\">'</script>",
        f"<script>if (a) /'/.test(b); e.innerHTML = '<input value=\"{T}\">'</script>",
        f"<script>/* ' */ e.innerHTML = '<input value=\"{T}\">' // '</script>",
        f"<script>// '\u2028e.innerHTML = '<input value=\"{T}\">'</script>",
        f'<script>e.innerHTML = `<b>${{"{T}"}}</b>`</script>',
        f"<script>e.innerHTML = `<b>${{a ? `<i title=\"{T}\">` : ''}}</b>`</script>",
        f'<script>e.innerHTML = `${{f({{}}) + `<i title="{T}">`}}`</script>',
        f"<script>e.innerHTML = `${{'}}' + `<i title=\"{T}\">`}}`</script>",
        f"<script>/* e.innerHTML = '{T}'</script>",
        f"<script>i++ / 2 + '</b title=\"{T}\">'</script>",
        f"<script>a\n--> it's\ne.innerHTML = '<input value=\"{T}\">'</script>",
        f'<script type=application/ld+json>["to {T}"]</script>',
        f'<script type=application/json>{{"html": "<b>{T}</b>"}}</script>',
        f'<script type=application/json>{{"html": "<b title=\'{T}\'>"}}</script>',
        f'<script type=application/json>{{"html": "<b title=\\"{T}\\">"}}</script>',
        f'<script type=application/json>{{"html": "<b>\\"{T}"}}</script>',
        f'<script type=application/json>{{"a": {T}}}</script>',
        f'<script type=application/json>["&quot;{T}&quot;"]</script>',
        f'<p data-x=\'{{"html": "<b>{T}</b>"}}\'>',
        f'<p data-x="{{&quot;html&quot;: &quot;<b>{T}</b>&quot;}}">',
        f'<p data-x="{{&quot;html&quot;: &quot;<b title=\\&quot;{T}\\&quot;>&quot;}}">',
        f'<p data-x="[&quot;<b title=&#92;&quot;, &quot;{T}&quot;]">',
        f'<p data-x="[&quot;<b title=&#092;&quot;, &quot;{T}&quot;]">',
        f"<p data-bind=\"{{html: '<b title=&quot;{T}&quot;>'}}\">",
        f'<script type="text/template"><b>{T}</b></script>',
        f'<script type="importmap">{{"a": "{T}"}}</script>',
        f"<style>{T}</style>",
        f"<!-- a --><a onclick='{T}'>",
    ],
)
def test_what_acts_keeps_its_token_also_then(page):
    assert written(page) is None


def test_the_element_that_a_rule_names_is_found_by_its_name_id_or_property():
    page = (
        b"<!-- <input name=born value=no> --><input value='1999-01-02' name=born><td id=\"born\"> 2000-01-02 </td>"
        b"<time itemprop=born datetime=2001&#45;01-02>x</time><p id=other>no</p><textarea name=born>t</textarea>"
        b"<script id=born>no</script><p id=born></p><b id=born>"
    )
    found = list(pages.named_texts(page, {"born": "birth_date"}))
    assert [(one.field, one.text) for one in found] == [
        ("birth_date", "1999-01-02"),
        ("birth_date", "2000-01-02"),
        ("birth_date", "2001-01-02"),
        ("birth_date", "t"),
    ]
    assert [page[one.start : one.end] for one in found][::2] == [b"1999-01-02", b"2001&#45;01-02"]
