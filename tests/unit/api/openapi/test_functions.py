from proxy.api.openapi.functions import DESCRIBED


def test_callers_are_told_what_stays_when_a_function_fails():
    assert "What it wrote until then stays" in DESCRIBED["call_function"].text
