from proxy.redactor.tools.lessons import Lessons, RequestTraffic
from proxy.redactor.tools.path_roles import (
    UNCLEAR,
    PathRoles,
    own_base,
    removes_record,
    restores,
)
from tests.support.table import table


def roles(*requests: str) -> PathRoles:
    operations = {(one.split()[0], one.split()[1]): RequestTraffic() for one in requests}
    return PathRoles(Lessons("http://a", "a test", None, operations))


@table(
    ("path", "base"),
    [
        ("/people", "/people"),
        ("/people/{id}/edit", "/people"),
        ("/people/{id}/restore", "/people"),
        ("/people/{id}/photo", "/people/{id}/photo"),
        ("/people/new/", "/people"),
    ],
)
def test_what_forms_and_buttons_do_belongs_to_the_collection(path, base):
    assert own_base(path) == base


def test_removals_and_ways_back_are_told_by_method_and_path():
    assert removes_record("DELETE", "/people/{id}")
    assert removes_record("POST", "/people/{id}/purge")
    assert not removes_record("DELETE", "/people")
    assert not removes_record("GET", "/people/{id}/delete")
    assert restores("POST", "/bin/{id}/restore")
    assert not restores("GET", "/bin/{id}/restore")
    assert not restores("POST", "/backups/restore")


def test_a_bin_belongs_to_the_one_collection_beside_it_that_has_deletes():
    several = "DELETE /people/{id}", "GET /trash", "DELETE /trash/{id}", "GET /people/deleted"
    one = roles(*several, "POST /orders")
    assert {one.base(path) for path in ("/trash", "/trash/{id}", "/people/deleted")} == {"/people"}
    assert one.keep("DELETE", "/people/{id}").startswith("    keep: until_deleted")
    assert one.keep("DELETE", "/trash/{id}") == ""
    two = roles(*several, "DELETE /orders/{id}")
    assert (two.base("/trash"), two.base("/people/deleted")) == (UNCLEAR, "/people")
    assert two.keep("DELETE", "/orders/{id}").startswith("    keep: 7y")
    apart = roles("DELETE /api/people/{id}", "GET /news/archive", "DELETE /news/{id}")
    assert apart.keep("DELETE", "/api/people/{id}").startswith("    # only marks the record")
