import yaml

from proxy.redactor.load import load_text
from proxy.redactor.tools.page_lessons import date_inputs, page_words
from proxy.redactor.tools.proposal import propose
from proxy.redactor.tools.watched import Observation, WatchedPath, learn_watched, watched_members
from tests.support.table import table
from tests.unit.redactor.tools.test_proposal import ANN, page, proposal, submitted


def test_names_of_date_fields_are_read_in_any_spelling():
    page = "<input type=date name=born><INPUT NAME='due' TYPE='Date'><input type='text' name=x>"
    assert date_inputs(f"{page}<input type=date><input data-name=y type=date>") == ["born", "due"]


FORM = "<input value='{email}' name=mail><input name='birth_date' type=date>"
LIST = "<table><tr><th>{0}<th>{1}<th>Joined<tr><td>Zorbina<td>1931-02-27<td>2020-01-01</table>"
CARD = "<dl><dt>{1}</dt><dd>1931-02-27</dd></dl><p>Zorbina</p>"


def proposed(*pages: tuple[str, str]) -> dict[str, object]:
    """The response of each page of a site that takes a name and a date of birth."""
    typed = {"first_name": "Zorbina", "birth_date": "1931-02-27"}
    text = proposal(
        page("GET", "/users/17/edit", FORM.format(**ANN)),
        submitted("/users", "/users/17", typed),
        *(page("GET", path, html) for path, html in pages),
    )
    paths = [path.replace("17", "{id}") for path, _ in pages]
    rules = yaml.safe_load(text)["operations"]
    return {one["match"]: one["response"] for one in rules if one["match"][4:] in paths}


@table(
    ("heads", "columns"),
    [
        (("First name", "Birth date"), {"First name": "first_name", "Birth date": "birth_date"}),
        (("FIRST NAME", "Born"), {"FIRST NAME": "first_name", "Born": "birth_date"}),
        (
            ("First name", "Date of birth"),
            {"First name": "first_name", "Date of birth": "birth_date"},
        ),
        (("Who", "Born"), None),  # nothing tells whose row it is
        (("First name", "Day"), None),
        (("First name", "Zorbina"), None),  # may be somebody's
    ],
)
def test_a_list_whose_heads_are_those_of_fields_is_proposed_with_its_columns(heads, columns):
    (rule,) = proposed(("/users", LIST.format(*heads))).values()
    only = {"restore": "html", "only": ["first_name"]}
    assert rule == (only if columns is None else {"restore": "html", "columns": columns})


@table(("head", "told"), [("Born", True), ("Birth date", True), ("Day", False)])
def test_a_page_of_one_person_is_proposed_with_its_labels_beside_its_form(head, told):
    (rule,) = proposed(("/users/17", CARD.format("", head))).values()
    columns = {"columns": {head: "birth_date"}} if told else {}
    assert rule == {"restore": "html", "form": {"birth_date": "birth_date"}, **columns}


def test_only_dates_whose_heads_were_met_are_columns():
    fields = {"name": "name", "born": "date", "married": "date"}
    dates = {"born": "born", "married": "married"}
    words = page_words(["Name", "Born"], fields, dates, single=False)
    assert words[1:] == ['columns: {"Born": born, "Name": name}', "only: [name, born]"]


def test_an_instance_tells_the_heads_of_pages_that_no_rule_names():
    def watched(method: str, path: str, request: str = "", answer: str = "") -> WatchedPath:
        seen = watched_members(Observation("", request, answer, "text/html"))
        return WatchedPath(method, path, 1, seen, ["name"])

    lessons = learn_watched(
        [
            watched("GET", "/users/{id}/edit", answer=FORM.format(**ANN)),
            watched("POST", "/users", request="first_name=Zorbina&birth_date=1931-02-27"),
            watched("GET", "/users", answer=LIST.format("First name", "Born")),
        ]
    )
    assert lessons.operations["GET", "/users"].heads == ["Born", "First name"]
    load_text(propose(lessons, "crm").text)
