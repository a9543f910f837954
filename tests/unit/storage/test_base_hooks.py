from proxy.storage.base import Hooks


def test_hooks_may_be_left_out() -> None:
    hooks = Hooks()
    hooks.on_batch(3, 0.5)
    assert hooks.waiting() == 0


def test_hooks_hear_size_and_seconds() -> None:
    heard: list[tuple[int, float]] = []
    Hooks(lambda size, seconds: heard.append((size, seconds))).on_batch(3, 0.5)
    assert heard == [(3, 0.5)]
