"""The ports are kept by what fulfils them: the fakes of these tests, and the redactor's own
classes.
"""

from proxy.gateway.metrics import MeteredAccessLog
from proxy.gateway.ports import AccessLog, ActiveRules, Exchange
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.runtime import VaultRules
from tests.support import gateway as fakes


def promised(port: type) -> set[str]:
    return {name for name in vars(port) if not name.startswith("_")}


def test_the_fakes_have_what_the_ports_promise():
    exchange: Exchange = fakes.Exchange()
    rules: ActiveRules = fakes.Steered(fakes.endpoint("http://x"))
    journal: AccessLog = fakes.Steered(fakes.endpoint("http://x"))
    assert promised(Exchange) <= set(dir(exchange))
    assert promised(ActiveRules) <= set(dir(rules))
    assert promised(AccessLog) <= set(dir(journal))


def test_so_has_what_runs_in_service():
    assert promised(Exchange) <= set(dir(RuleExchange))
    assert promised(ActiveRules) <= set(dir(VaultRules))
    assert promised(AccessLog) <= set(dir(MeteredAccessLog))
