import base64
import hashlib
import re
from html.parser import HTMLParser

from proxy.api.openapi.assemble import assemble
from proxy.api.openapi.described import DESCRIBED
from proxy.api.openapi.page import POLICY, page
from proxy.api.operations import OPERATIONS

PAGE = page(assemble(OPERATIONS, DESCRIBED), DESCRIBED).decode()


class Tags(HTMLParser):
    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.used: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.used.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read() -> Tags:
    tags = Tags()
    tags.feed(PAGE)
    return tags


def test_every_tag_is_closed_in_order():
    assert read().open == []


def test_every_link_leads_somewhere_on_this_listener():
    tags = read()
    ids = [attributes["id"] for _, attributes in tags.used if "id" in attributes]
    links = [attributes["href"] or "" for tag, attributes in tags.used if tag == "a"]
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links} - set(ids) == {"/openapi.json"}


def test_the_page_needs_nothing_from_elsewhere():
    tags = {tag for tag, _ in read().used}
    assert tags & {"script", "link", "img", "iframe", "form"} == set()
    assert "url(" not in PAGE
    (style,) = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in POLICY
    assert POLICY.startswith("default-src 'none'")


def test_every_operation_is_shown_with_its_examples():
    for operation in OPERATIONS:
        assert f'<article id="{operation.name}">' in PAGE
    assert PAGE.count("<summary>") == sum(
        len(DESCRIBED[operation.name].examples) for operation in OPERATIONS
    )
    assert "curl -X POST" in PAGE
