"""Every key of the rule language does something: the same exchanges end otherwise without it.

Each scenario is a rule file and what happens under it. Each of its keys is taken out, one at a time,
and the scenario is run again; a key that changes nothing is exercised by no scenario.
"""

from tests.support.effects import Word, effective, every_word
from tests.support.scenarios import SCENARIOS
from tests.support.tree import ROOT

#: Keys that one file of rules cannot do without, or whose effect lies beyond one exchange: the tests of these.
CALLERS = "tests/unit/gateway/test_callers.py::"
XML = "tests/unit/redactor/bodies/test_xml_bodies.py::"
CARDS = "tests/unit/redactor/test_content_lines.py::"
EXERCISED: dict[Word, str] = {
    ("rule_file", "version"): "tests/unit/redactor/load/test_loader.py::test_the_smallest_useful_file_loads_without_a_warning",
    ("rule_file", "endpoint"): "tests/unit/redactor/load/test_loader.py::test_a_file_may_hold_nothing_but_an_endpoint",
    ("rule_file", "entities"): "tests/unit/redactor/load/test_loader.py::test_the_smallest_useful_file_loads_without_a_warning",
    ("endpoint", "name"): "tests/unit/redactor/load/test_conflicts.py::test_one_name_for_two_endpoints_is_a_fault",
    ("endpoint", "upstream"): "tests/unit/redactor/load/test_entities.py::test_addresses_come_from_outside_by_reference",
    ("endpoint", "refusals"): "tests/integration/gateway/test_redacted.py::test_a_refusal_has_the_form_that_the_rules_say_but_for_browsers_that_want_a_page",
    ("endpoint", "caller"): CALLERS + "test_a_signed_token_gives_its_roles_and_is_verified_once",
    ("caller", "from"): CALLERS + "test_a_token_may_be_asked_about",
    ("caller", "jwks"): CALLERS + "test_a_token_ends_and_keys_are_rotated",
    ("caller", "url"): CALLERS + "test_a_token_may_be_asked_about",
    ("caller", "credentials"): CALLERS + "test_a_token_may_be_asked_about",
    ("caller", "roles"): CALLERS + "test_roles_stand_in_a_part_of_a_certificate",
    ("caller", "issuer"): CALLERS + "test_issuer_and_audience_count_where_the_rule_names_them",
    ("caller", "audience"): CALLERS + "test_issuer_and_audience_count_where_the_rule_names_them",
    ("entity", "population"): "tests/unit/redactor/load/test_entities.py::test_a_planned_population_makes_room_enough",
    ("entity", "versions"): "tests/unit/redactor/exchange/test_settle_versions.py::test_without_the_word_an_update_ends_what_it_replaces",
    ("entity", "fields"): "tests/unit/redactor/load/test_entities.py::test_a_field_has_the_shape_of_its_kind_and_the_member_of_its_name",
    ("field", "stored"): "tests/unit/redactor/load/test_entities.py::test_the_schema_of_the_vault_follows_find_and_stored",
    ("request", "xml"): XML + "test_the_application_gets_tokens_and_the_caller_people",
    ("response", "xml"): XML + "test_the_application_gets_tokens_and_the_caller_people",
    ("request", "vobject"): CARDS + "test_cards_are_swapped_and_turned_back",
    ("response", "vobject"): CARDS + "test_cards_are_swapped_and_turned_back",
    ("request", "xmlrpc"): XML + "test_calls_of_xml_rpc",
    ("response", "xmlrpc"): XML + "test_calls_of_xml_rpc",
    ("on_error", "untold_token"): "tests/unit/redactor/exchange/test_bound_operation.py::test_a_rule_may_show_what_the_id_alone_tells_from_a_value",
    ("on_error", "unknown_token"): "tests/unit/redactor/exchange/test_request_tokens.py::test_a_look_alike_that_resolves_to_nothing_is_data",
}  # fmt: skip


async def test_every_key_changes_what_happens() -> None:
    telling: set[Word] = set()
    for scenario in SCENARIOS:
        telling |= await effective(scenario, telling)
    assert [word for word in every_word() if word not in telling | EXERCISED.keys()] == []


def test_keys_whose_effect_lies_beyond_one_exchange_have_a_test():
    for named in EXERCISED.values():
        file, _, test = named.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text("utf-8"), named
