"""Reading JSON that nobody vouches for: every access checks the type and the bounds of what it returns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainkernel.errors import ArtifactError

#: Characters of a text at most.
MAX_TEXT = 1 << 16
_SYMBOL = re.compile(r"[A-Za-z_.$][\w.$]{0,1023}", re.ASCII)


def malformed(actual: str, expected: str) -> ArtifactError:
    """The error for a manifest that no version of the compiler writes."""
    hint = "the file was not written by trainkernel, or is damaged: compile the step again"
    return ArtifactError(f"malformed manifest: {actual}", expected=expected, hint=hint)


def parse_json(data: bytes) -> object:
    """Parse UTF-8 JSON, padded with NUL bytes or not.

    Raises:
        ArtifactError: the bytes are no strict JSON (NaN and Infinity are not), or nested too deeply.
    """
    try:
        return json.loads(data.rstrip(b"\0").decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise malformed("it is nested too deeply", "some ten levels") from None
    except ValueError as error:  # UnicodeDecodeError, JSONDecodeError and too long numbers are ValueErrors
        raise malformed(f"it is no UTF-8 JSON ({error})", "a JSON object") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


class JsonReader:
    """Checked access to a JSON object.

    Args:
        obj: what the JSON parser returned.
        path: its name in errors.

    Raises:
        ArtifactError: from the constructor and from every method, where the data is not what was asked for.
    """

    def __init__(self, obj: object, path: str) -> None:
        if not isinstance(obj, dict):
            raise malformed(f"{path} is {_shown(obj)}", "an object")
        self.path = path
        self._obj: dict[str, Any] = obj

    def get(self, key: str) -> object:
        """The value of a key that must be there."""
        if key not in self._obj:
            raise malformed(f"{self.path} has no {key!r}", "one")
        return self._obj[key]

    def text(self, key: str) -> str:
        """A string without NUL."""
        return self._text(self.get(key), key)

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of strings."""
        return tuple(self._text(item, f"{key}[{index}]") for index, item in enumerate(self.array(key)))

    def symbol(self, key: str) -> str:
        """The name of a symbol in an object file."""
        value = self.text(key)
        if not _SYMBOL.fullmatch(value):
            raise malformed(f"{self.path}.{key} is {value!r}", "a symbol name")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """A string out of a few."""
        value = self.text(key)
        if value not in choices:
            raise malformed(f"{self.path}.{key} is {_shown(value)}", f"one of {', '.join(choices)}")
        return value

    def integer(self, key: str, low: int, high: int, *, default: int | None = None) -> int:
        """A whole number in low..high; the default, where given, stands for a missing key."""
        if default is not None and key not in self._obj:
            return default
        return self._integer(self.get(key), key, low, high)

    def optional_integer(self, key: str, low: int, high: int) -> int | None:
        """A whole number in low..high, or None for null or a missing key."""
        value = self._obj.get(key)
        return None if value is None else self._integer(value, key, low, high)

    def integers(self, key: str, low: int, high: int, *, max_length: int) -> tuple[int, ...]:
        """An array of at most max_length whole numbers in low..high."""
        items = self.array(key)
        if len(items) > max_length:
            raise malformed(f"{self.path}.{key} has {len(items)} elements", f"at most {max_length}")
        return tuple(self._integer(item, f"{key}[{index}]", low, high) for index, item in enumerate(items))

    def triple(self, key: str, high: tuple[int, int, int]) -> tuple[int, int, int]:
        """An array of three whole numbers, each in 1..high; (1, 1, 1) for a missing key."""
        items = self.array(key, default=(1, 1, 1))
        if len(items) != 3:
            raise malformed(f"{self.path}.{key} has {len(items)} elements", "3")
        x, y, z = (self._integer(item, f"{key}[{axis}]", 1, high[axis]) for axis, item in enumerate(items))
        return x, y, z

    def boolean(self, key: str, *, default: bool) -> bool:
        """A truth value; the default stands for a missing key."""
        value = self._obj.get(key, default)
        if not isinstance(value, bool):
            raise malformed(f"{self.path}.{key} is {_shown(value)}", "true or false")
        return value

    def array(self, key: str, *, default: Sequence[Any] | None = None) -> Sequence[Any]:
        """An array of anything; the default, where given, stands for a missing key."""
        if default is not None and key not in self._obj:
            return default
        value = self.get(key)
        if not isinstance(value, list):
            raise malformed(f"{self.path}.{key} is {_shown(value)}", "an array")
        return value

    def optional_child(self, key: str) -> JsonReader | None:
        """An object, or None for null or a missing key."""
        return None if self._obj.get(key) is None else self.child(key)

    def child(self, key: str) -> JsonReader:
        """An object."""
        return JsonReader(self.get(key), f"{self.path}.{key}")

    def children(self, key: str) -> list[JsonReader]:
        """An array of objects."""
        return [JsonReader(item, f"{self.path}.{key}[{index}]") for index, item in enumerate(self.array(key))]

    def opaque(self, key: str) -> Mapping[str, Any]:
        """An object whose content is not looked at; empty for a missing key."""
        return JsonReader(self._obj.get(key, {}), f"{self.path}.{key}")._obj

    def _text(self, value: object, key: str) -> str:
        if not isinstance(value, str) or "\0" in value or len(value) > MAX_TEXT:
            raise malformed(f"{self.path}.{key} is {_shown(value)}", "a string")
        return value

    def _integer(self, value: object, key: str, low: int, high: int) -> int:
        # bool is a subclass of int.
        if type(value) is not int or not low <= value <= high:
            raise malformed(f"{self.path}.{key} is {_shown(value)}", f"a whole number from {low} to {high}")
        return value


def _shown(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
