from proxy.bootstrap.rule_history import RuleHistory
from proxy.redactor.exchange.runtime import Runtime
from proxy.redactor.load import load_files, load_text
from proxy.redactor.rules import RuleSet
from tests.support.exchanges import USUAL, desk, rule_text

HOUR = 3_600_000


def numbered(number: int) -> RuleSet:
    return load_text(rule_text(*USUAL) + f"# {number}\n")


async def test_the_last_rules_that_fronts_used_are_there_for_the_next_owner():
    one = await desk()
    clock = one.clock
    bound: list[str] = []

    async def bind(rules: RuleSet) -> Runtime:
        bound.append(rules.version)
        return one.runtime

    def history() -> RuleHistory:
        return RuleHistory(one.vault.store, clock, load_files, bind)

    first, second = numbered(1), numbered(2)
    assert await history().recall(first.version) is None
    for rules in (first, second, first):  # went back
        await history().remember(rules)
        clock.advance(HOUR)
    for rules in (first, second):
        assert await history().recall(rules.version) is one.runtime
    assert bound == [first.version, second.version]
    clock.advance(24 * HOUR)
    assert await history().recall(second.version) is None, "replaced a day ago"
    assert await history().recall(first.version) is not None
    for number in range(3, 8):
        await history().remember(numbered(number))
    assert await history().recall(first.version) is None, "five are remembered"
    assert await history().recall(numbered(3).version) is not None


async def test_what_was_read_from_no_file_is_not_remembered():
    one = await desk()

    async def bind(_: RuleSet) -> Runtime:
        raise AssertionError

    history = RuleHistory(one.vault.store, one.clock, load_files, bind)
    await history.remember(RuleSet("none", (), (), ()))
    assert await history.recall("none") is None
