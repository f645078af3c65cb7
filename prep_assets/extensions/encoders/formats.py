"""A format of chats that two implementations write."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, TemplateError

PREFIX = "encoder:"
Interval = tuple[int, int]
Messages = Sequence[Mapping[str, Any]]
Options = Mapping[str, Any]
Write = Callable[[Messages, Sequence[Any], Options, bool], str]
"""Messages, tools, options, whether to end with the generation prompt → text."""
Mark = Callable[[Messages, Sequence[Any], Options, bool], tuple[str, tuple[Interval, ...]] | None]
"""The same → text, and the characters in it that a model generates; `None` if the package cannot tell."""


@dataclass(frozen=True)
class Format:
    """A format of chats, as a `Renderer` of `text.template`.

    Attributes:
        name: its name, behind ``encoder:``.
        tokens: the control tokens that it writes; its stop token first.
        options: name → values of each option; no values: any.
        packages: modules whose code writes it.
        write, again: the two implementations.
        mark: what one of them marks as generated.
        proofs: what certificates say of it, without versions.
        pinned: what else decides its renders, such as the hash of own code.
    """

    name: str
    tokens: tuple[str, ...]
    options: Mapping[str, tuple[Any, ...]]
    packages: tuple[str, ...]
    write: Write
    again: Write
    mark: Mark | None
    proofs: tuple[str, ...]
    pinned: tuple[str, ...] = ()

    @cached_property
    def source(self) -> str:
        """Its packages with their versions and the hash of their code, and its tokens: what a recipe holds of it."""
        return "\n".join([f"encoder {self.name}", *map(_pin, self.packages), *self.pinned, *self.tokens])

    @property
    def marks(self) -> bool:
        """See `Renderer`."""
        return self.mark is not None

    def check_installed(self) -> None:
        """Raise where a package is missing."""
        if missing := [package for package in self.packages if find_spec(package) is None]:
            raise TemplateError(
                f"template {PREFIX}{self.name} is written by the packages {', '.join(self.packages)}, and {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not installed: pip install 'prep-assets[encoders]'"
            )

    def render(self, messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> str:
        """See `Renderer`."""
        text: str = _guarded(self.write, messages, tools, options, prompted)
        return text

    def render_again(self, messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> str:
        """See `Renderer`."""
        text: str = _guarded(self.again, messages, tools, options, prompted)
        return text

    def generated(self, messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> tuple[Interval, ...] | None:
        """See `Renderer`."""
        marked = None if self.mark is None else _guarded(self.mark, messages, tools, options, prompted)
        return None if marked is None or marked[0] != self.render_again(messages, tools, options, prompted) else marked[1]

    def corrupted(self) -> Iterator[tuple[str, Format, bool]]:
        """See `Renderer`."""

        def changed(text: str) -> str:
            last = max(self.tokens, key=text.rfind)
            return next(token for token in self.tokens if token != last).join(text.rsplit(last, 1))

        what = "the last marker of a chat changed"
        yield what, replace(self, again=lambda *chat: changed(self.again(*chat)), mark=None, pinned=(what,)), False
        if (mark := self.mark) is None:
            return

        def wrong(what: str, move: Callable[[Sequence[Interval]], Sequence[Interval]]) -> tuple[str, Format, bool]:
            def marked(*chat: Any) -> tuple[str, tuple[Interval, ...]] | None:
                found = mark(*chat)
                return found and (found[0], tuple(move(found[1])))

            return what, replace(self, mark=marked, pinned=(what,)), True

        yield wrong("what the renderer marks begins a character late", lambda marks: [(start + 1, end + 1) for start, end in marks])
        yield wrong("the renderer does not mark the last answer", lambda marks: marks[:-1])


def _guarded(function: Callable[..., Any], *chat: Any) -> Any:
    """Call the code of a package; a panic of Rust is no `Exception`, and would end the process."""
    try:
        return function(*chat)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"its code panicked: {error}") from None


@bounded_cache("pins of encoders", 16)
def _pin(package: str) -> str:
    """A package, its version, and the sha256 of its code."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"the package {package} is not installed: pip install 'prep-assets[encoders]'")
    root, digest = Path(spec.submodule_search_locations[0]), hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".so", ".pyd", ".dylib")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return f"{package} {version_of(package)} {digest.hexdigest()}"


def version_of(package: str) -> str:
    """The version of a package; ``?`` if it has none."""
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "?"


def intervals(text_of: Callable[[Sequence[int]], str], ids: Sequence[int], flags: Sequence[Any]) -> tuple[str, tuple[Interval, ...]]:
    """The text of tokens, and the characters of each run that is flagged alike."""
    text, found = "", list[Interval]()
    for flagged, run in groupby(zip(ids, flags, strict=True), lambda pair: pair[1]):
        start, text = len(text), text + text_of([token for token, _ in run])
        if flagged:
            found.append((start, len(text)))
    return text, tuple(found)
