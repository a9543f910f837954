"""What holders of key bytes share: they do not travel and do not show."""

from typing import Any, NoReturn


class Secret:
    """An object that cannot be pickled, copied or printed, so that no key reaches a log, a core of
    text or a worker.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds key bytes and is neither pickled nor copied")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: key bytes not shown>"
