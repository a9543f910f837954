"""Reading the options of a shape: checked by name and type, each fault a sentence for the rule file's author."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.tokenization.base import Shape

#: The option of every shape that can answer equal values with equal tokens.
SAME = {"same": "true: equal values get equal tokens (a keyed function of field and value); default false"}


@dataclass(frozen=True, slots=True)
class Given:
    """The options that a rule gives one shape."""

    shape: str
    options: Mapping[str, object]

    def flag(self, name: str) -> bool:
        """Yes or no; no where absent."""
        value = self.options.get(name, False)
        if not isinstance(value, bool):
            raise ValueError(f"{name} of token shape {self.shape} is true or false")  # noqa: TRY004  # one kind of error for all faults of a rule file
        return value

    def count(self, name: str) -> int:
        """A whole number, 0 or more; 0 where absent."""
        value = self.options.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} of token shape {self.shape} is a whole number, 0 or more")
        return value

    def text(self, name: str, default: str) -> str:
        """A text that is not empty."""
        value = self.options.get(name, default)
        if not isinstance(value, str) or not value:
            raise ValueError(f"{name} of token shape {self.shape} is a text that is not empty")
        return value


@dataclass(frozen=True, slots=True)
class Parser:
    """One entry of ``SHAPES``: the names of the options, and what builds the shape of them."""

    name: str
    options: Mapping[str, str]
    build: Callable[[Given], Shape]

    def __call__(self, options: Mapping[str, object]) -> Shape:
        for name in options:
            if name not in self.options:
                takes = f"it takes {', '.join(self.options)}" if self.options else "it takes no options"
                raise ValueError(f"token shape {self.name} has no option {name!r}; {takes}")
        return self.build(Given(self.name, options))
