"""A page's form as a browser reads it: what stands in its fields, and what a submit of it would
send.
"""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The fields of the page's forms by name, and its text.

    Character references are undone, as a browser does.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.fields: dict[str, str] = {}  #: of all forms together; a submit button is no field
        self.text = ""
        self._area = ""
        self._select = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "input" and given.get("name") and given.get("type") not in ("submit", "button"):
            box = given.get("type") in ("checkbox", "radio")
            if not box or "checked" in given:
                self.fields[given["name"]] = given.get("value", "on" if box else "")
        elif tag == "textarea":
            self._area = given.get("name", "")
            self.fields[self._area] = ""
        elif tag == "select":
            self._select = given.get("name", "")
        elif tag == "option" and self._select and "selected" in given:
            self.fields[self._select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # The first line break after the tag is no part of the value, and others are sent as CR
            # LF (HTML, forms).
            self.fields[self._area] = self.fields[self._area].removeprefix("\r").removeprefix("\n")
            self._area = ""
        elif tag == "select":
            self._select = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data
        else:
            self.text += data
