"""Typed look-ups in a config document, and the errors they raise. Knows no model."""

from collections.abc import Mapping
from typing import Any

from engine.errors import ConfigRefused


class ConfigError(ConfigRefused):
    """config.json can't be used. Subclasses say why.

    ConfigError
    ├── MissingField        a field that has no default is absent
    ├── WrongType           a field holds another type
    └── UnsupportedConfig   a value this engine has no code for
    """


class MissingField(ConfigError):
    def __init__(self, field: str) -> None:
        super().__init__(f"config.json: {field} is missing")
        self.field = field


class WrongType(ConfigError):
    def __init__(self, field: str, value: object, wanted: str) -> None:
        super().__init__(f"config.json: {field} is {value!r}, wanted {wanted}")
        self.field = field


class UnsupportedConfig(ConfigError):
    def __init__(self, field: str, value: object, supported: str) -> None:
        super().__init__(f"config.json: {field} is {value!r}; supported: {supported}")
        self.field = field
        self.value = value


class Fields:
    """Typed look-ups in a JSON object; a null counts as absent."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self.values = values
        self.prefix = prefix

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise WrongType(self.prefix + name, value, "an integer >= 0")
        return value

    def size(self, name: str, default: int | None = None) -> int:
        value = self.integer(name, default)
        if value == 0:
            raise WrongType(self.prefix + name, value, "an integer > 0")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise WrongType(self.prefix + name, value, "a number > 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise WrongType(self.prefix + name, value, "true or false")
        return value

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """A list of integers; a bare integer is a list of one."""
        value = self._value(name, default)
        items = (value,) if isinstance(value, int) else value
        if not isinstance(items, list | tuple) or not all(type(item) is int for item in items):
            raise WrongType(self.prefix + name, value, "integers")
        return tuple(items)

    def section(self, name: str) -> "Fields":
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise WrongType(self.prefix + name, value, "an object")
        return Fields(value, f"{self.prefix}{name}.")

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None and default is None:
            raise MissingField(self.prefix + name)
        return default if value is None else value
