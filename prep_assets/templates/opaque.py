"""What a template gets in place of a tool, of a call's arguments or of a value in them while its questions are noted: it may write them as they are, and
go through the arguments of a call; each look into anything else is a question that others answer otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prep_assets.templates.questions import Questions


class Opaque:
    """A list or an object that is not empty, closed to looks."""

    __slots__ = ("_asked", "_value")

    def __init__(self, value: Any, asked: Questions) -> None:
        self._value, self._asked = value, asked

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: Any) -> Any:
        return self._looked_into()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._looked_into())

    def __len__(self) -> int:
        return len(self._looked_into())

    def __repr__(self) -> str:
        return repr(self._looked_into())

    def _looked_into(self) -> Any:
        self._asked.cannot_tell("a look into a tool, or into the arguments of a call")
        return self._value

    @property
    def unwatched(self) -> Any:
        """The value itself, for questions that all of its type answer alike."""
        return self._value

    def write(self, write: Callable[[Any], Any]) -> str:
        """What a template writes of all of it, noted."""
        text = str(write(self._value))
        self._asked.written[text] = lambda value: str(write(value))
        return text


class OpaqueObject(Opaque, Mapping[str, Any]):
    """A tool, or an object in arguments."""

    __slots__ = ()


class OpaqueList(Opaque, Sequence[Any]):
    """A list in arguments."""

    __slots__ = ()


class Arguments(OpaqueObject):
    """The arguments of a call, whose items a template may go through."""

    __slots__ = ()

    def items(self) -> Any:
        """Names and values, which are watched."""
        self._asked.goes_through = True
        return [(name, _watched(value, self._asked)) for name, value in self._value.items()]


class Number:
    """A number in arguments. A template may write it; whether it is zero, or what more would make of it, is a question that others answer otherwise."""

    asked: Questions

    def __bool__(self) -> bool:
        self.asked.cannot_tell("whether a number is zero")
        return True

    def __add__(self, other: Any) -> Any:
        self.asked.cannot_tell("a sum with a number")
        return NotImplemented

    __radd__ = __add__


class Length:
    """The length of a text, which is more than nothing; a comparison with anything else is a question that others answer otherwise."""

    __slots__ = ("_asked",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, asked: Questions) -> None:
        self._asked = asked

    def _beside_zero(self, other: object, answer: bool) -> bool:
        if type(other) is not int or other != 0:
            self._asked.cannot_tell("how long a text is")
        return answer

    def __gt__(self, other: object) -> bool:
        return self._beside_zero(other, True)

    def __eq__(self, other: object) -> bool:
        return self._beside_zero(other, False)


class _Whole(Number, int):
    pass


class _Real(Number, float):
    pass


def _watched(value: Any, asked: Questions) -> Any:
    """A value of arguments under watch. `None`, truth values and what is empty are themselves: no other value is like them."""
    if isinstance(value, dict | list) and value:
        return (OpaqueObject if isinstance(value, dict) else OpaqueList)(value, asked)
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = _Whole(value) if isinstance(value, int) else _Real(value)
        number.asked = asked
        return number
    return value
