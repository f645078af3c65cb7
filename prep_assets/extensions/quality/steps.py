"""What a quality step is, the registry of steps, and steps written by users.

A step is a factory. It is called once for a domain, with the options of the configuration, and returns a `Step`, which takes the examples of the domain in
blocks, in the order of the sources:

    @quality_step("short_answer", source="our own", corrupted=([chat_of_one_word], "short"))
    def short_answer(*, words: int = 3) -> Step: ...

A step that looks at each example alone is a function from `Examples` to `Judged`, wrapped by `by_block`. One that compares examples with each other notes
what it needs in `judge`, and says in `finish` what it found.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import chain, repeat
from traceback import extract_tb, format_exception_only
from typing import Any, Literal, TypeVar, get_args

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from prep_assets import plugins
from prep_assets.errors import ConfigError, PrepAssetsError, nearest
from prep_assets.extensions.quality.apart import Ended, call_apart, own
from prep_assets.own_code import added_code, own_code_hash
from prep_assets.samples import MEDIA, THINKING, TOOL_CALL, Contrast, Example, Group, Pair, Prompt, Region, Sample, Turn, parts_of
from prep_assets.schemas.registry import check_options
from prep_assets.stores.arrays import Spool

PROMPT, ANSWER, CHOSEN, REJECTED = "prompt", "answer", "chosen", "rejected"
CONTEXT = TOOLS, DOCUMENTS, OPTIONS, NAMES = "<tools>", "<documents>", "<options>", "<names>"
"""Roles of what is written beside the turns: tools, documents, `template_options` and what a verifier is told, names of speakers with ids of calls."""
CLUSTER = "cluster"
"""The note of steps that cluster examples: the number of the first member of the cluster of each, -1 for one that is alone."""
Finding = tuple[str, str]
"""Reason, a slug that is the same for all examples with this fault; and detail, with the numbers of this one. No text of the example: what somebody has
to forget must not stand in verdicts."""
Action = Literal["drop", "note", "block"]
"""What becomes of an example that a step finds wrong: it is refused; counted and kept; or no store is published while there is one."""


class Examples(Struct, frozen=True, dict=True):
    """Consecutive examples of one domain, in columns.

    Attributes:
        ids: ids of their records.
        examples: the examples.
        solutions: the text of each source that its schema takes notes and the final mark out of, as `gsm8k` does; empty for other schemas.
    """

    ids: Sequence[str]
    examples: Sequence[Example]
    solutions: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def halves(self) -> list[Examples]:
        """The first half and the rest, neither empty; nothing of one example."""
        middle = len(self) // 2
        cuts = (slice(middle), slice(middle, None)) if middle else ()
        return [Examples(self.ids[cut], self.examples[cut], self.solutions[cut]) for cut in cuts]

    @cached_property
    def parts(self) -> list[list[tuple[str, str]]]:
        """The texts of each example in order, each with its role: first those of `CONTEXT`, a tool or document each; then that of each turn; `CHOSEN` and
        `REJECTED` for the answers of a pair, `ANSWER` for responses, golds and positives, `REJECTED` for negatives."""
        return [_parts(example) for example in self.examples]

    @cached_property
    def texts(self) -> list[str]:
        """All text of each example that a template may write, with a blank line between its parts."""
        return ["\n\n".join(text for _, text in parts) for parts in self.parts]

    @cached_property
    def said(self) -> list[str]:
        """The same without `CONTEXT`: what rules about writing judge, since tools are no prose, and rows share them."""
        return ["\n\n".join(text for role, text in parts if role not in CONTEXT) for parts in self.parts]


def _parts(example: Example) -> list[tuple[str, str]]:
    if isinstance(example, Contrast):
        instruction = [(OPTIONS, example.instruction)] if example.instruction else []
        answers = [(role, text) for role, texts in ((ANSWER, example.positives), (REJECTED, example.negatives)) for text in texts]
        return [*instruction, (PROMPT, example.query), *answers]
    turns, *several = parts_of(example)
    roles = (CHOSEN, REJECTED) if isinstance(example, Pair) else repeat(ANSWER)
    said = [(turn.role, _text(turn)) for turn in turns]
    said += [(role, _text(turn)) for role, answer in zip(roles, several, strict=False) for turn in answer]
    if isinstance(example, Prompt):
        said += [(ANSWER, example.gold)] if example.gold else []
    parts = [*_context(example, chain(turns, *several)), *said]
    if parts or not isinstance(example, Sample):
        return parts
    return [("document", example.tokenized.text or "" if example.tokenized else "")]


def _context(example: Sample | Pair | Prompt | Group, turns: Iterable[Turn]) -> list[tuple[str, str]]:
    parts = [(TOOLS, text_of(tool)) for tool in example.tools] + [(DOCUMENTS, text_of(document)) for document in example.documents]
    parts += [(OPTIONS, text_of(example.template_options))] if example.template_options else []
    parts += [(OPTIONS, example.arguments)] if isinstance(example, Prompt) and example.arguments else []
    names = [name for turn in turns for name in (turn.name, turn.tool_call_id) if name]
    return [*parts, (NAMES, "\n".join(names))] if names else parts


def text_of(value: Any) -> str:
    """Keys and values of JSON, a line each: templates write some with escapes, and others without."""
    match value:
        case Mapping():
            return "\n".join(text for entry in value.items() for text in map(text_of, entry) if text)
        case list() | tuple():
            return "\n".join(text for text in map(text_of, value) if text)
    return "" if value is None or value is True or value is False else str(value)


def _text(turn: Turn) -> str:
    return "".join(map(_of_region, turn.regions))


def _of_region(region: Region) -> str:
    if region.drop or region.kind in MEDIA:
        return ""
    if region.kind == TOOL_CALL:
        with suppress(msgspec.DecodeError):  # a user's schema may write anything
            return f"\n{text_of(msgspec.json.decode(region.text))}\n"
    return f"{region.text}\n" if region.kind == THINKING else region.text


class Judged(Struct, frozen=True):
    """What a step says of some examples.

    Attributes:
        found: number of an example → what is wrong with it, for those that are.
        notes: name → a number or a text for each example, kept beside the verdicts.
    """

    found: Mapping[int, Finding] = field(default_factory=dict)
    notes: Mapping[str, Sequence[Any]] = field(default_factory=dict)


class Step:
    """A step at work on one domain.

    Attributes:
        noted: what `judge` notes for `finish`, in the order of the examples. A step that keeps anything else judges a domain in one process.
    """

    noted: tuple[Spool, ...] = ()

    def learn(self, prompts: Sequence[Prompt]) -> None:
        """Learn golds of the family rl, before the first block; of a step that is registered with `golds`."""

    def judge(self, examples: Examples) -> Judged:
        """Judge the next examples of the domain, numbered from 0 in this block."""
        raise NotImplementedError

    def finish(self, kept: npt.NDArray[np.bool_]) -> Judged:
        """Judge all examples, numbered from 0 in the domain, after the last block.

        Args:
            kept: bool[n], the examples that no step before this one drops.
        """
        return Judged()

    def after(self, domain: str, left: npt.NDArray[np.uint64]) -> None:
        """Learn what `leaves` gave of an earlier domain, before the first block of this one; of a step with the option `across`."""
        raise NotImplementedError

    def leaves(self, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
        """What later domains are compared with, in one dimension.

        Args:
            kept: bool[n], the examples that no step drops.
        """
        raise NotImplementedError


class _ByBlock(Step):
    def __init__(self, judge: Callable[[Examples], Judged]) -> None:
        self._judge = judge

    def judge(self, examples: Examples) -> Judged:
        return self._judge(examples)


def by_block(judge: Callable[[Examples], Judged]) -> Step:
    """The step that looks at each block of examples alone."""
    return _ByBlock(judge)


def by_example(finding: Callable[[Examples, int], Finding | None]) -> Step:
    """The step that looks at each example of a block alone, by its number."""
    return _ByBlock(lambda block: Judged({at: found for at in range(len(block)) if (found := finding(block, at)) is not None}))


# The registry.

Factory = TypeVar("Factory", bound=Callable[..., Step])


class Registered(Struct, frozen=True):
    """A registered step.

    Attributes:
        source: where its rule and its numbers come from.
        corrupted: an example that it must find wrong, and the reason; its `selftest`.
        takes: the kinds of examples that it can judge.
        libraries: packages whose versions decide its verdicts.
        clusters: whether it notes `CLUSTER` at the end, so that no cluster stands on both sides of a split.
        golds: whether it judges answers by the golds of the family rl, see `Step.learn`.
        version: raised when its verdicts change.
    """

    name: str
    factory: Callable[..., Step]
    source: str
    corrupted: tuple[Sequence[Example], str]
    takes: tuple[type, ...]
    libraries: tuple[str, ...]
    clusters: bool
    golds: bool
    version: int

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of each option."""
        return {name: parameter.default for name, parameter in inspect.signature(self.factory).parameters.items()}


_STEPS: dict[str, Registered] = {}


def quality_step(
    name: str,
    *,
    source: str,
    corrupted: tuple[Sequence[Example], str],
    takes: tuple[type, ...] = (Sample, Pair, Prompt, Group, Contrast),
    libraries: tuple[str, ...] = (),
    clusters: bool = False,
    golds: bool = False,
    version: int = 1,
) -> Callable[[Factory], Factory]:
    """Register a step factory under `name`. The other arguments are those of `Registered`."""

    def register(factory: Factory) -> Factory:
        plugins.claim("quality step", [name], factory)
        _STEPS[name] = Registered(name, factory, source, corrupted, takes, libraries, clusters, golds, version)
        return factory

    return register


@cache
def quality_steps() -> dict[str, Registered]:
    """Every step by name, sorted, those of other packages too."""
    plugins.load_all("steps")
    return dict(sorted(_STEPS.items()))


class Configured(Struct, frozen=True):
    """A step as the configuration has it.

    Attributes:
        make: opens it for one domain.
        recipe: what decides its verdicts: options, versions of libraries, the hash of user code.
        across: whether it also compares the domain with those before it; its option `across`.
        golds, clusters: see `Registered`.
    """

    name: str
    action: Action
    make: Callable[[], Step]
    recipe: Mapping[str, Any]
    across: bool = False
    golds: bool = False
    clusters: bool = False


def configured_steps(steps: Mapping[str, Mapping[str, Any]], form: type) -> list[Configured]:
    """The configured steps, in order.

    Args:
        steps: name, or ``package.module:function`` → options, among them `action`.
        form: the kind of examples that they judge.

    Raises:
        ConfigError: no such step or option, an option of the wrong type, or a step that cannot judge these examples.
    """
    return [_configured(name, dict(options), form) for name, options in steps.items()]


def _configured(name: str, options: dict[str, Any], form: type) -> Configured:
    from importlib.metadata import PackageNotFoundError, version

    action = options.pop("action", "drop")
    if action not in get_args(Action):
        raise ConfigError(f"quality step {name!r}, option 'action' = {action!r}: needs one of {', '.join(get_args(Action))}")
    if ":" in name:
        return Configured(
            name, action, lambda: _own_step(name, options), {"action": action, "options": options, "code": own_code_hash(name)}
        )
    known = quality_steps()
    if name not in known:
        raise ConfigError(f"no quality step {name!r}{nearest(name, known) or '.'} Known: {', '.join(known)}; or 'package.module:function'")
    step = known[name]
    if not issubclass(form, step.takes):
        takes = ", ".join(kind.__name__ for kind in step.takes)
        raise ConfigError(f"quality step {name!r} judges {takes}; the rows here become {form.__name__}. Leave it out")
    check_options(f"quality step {name!r}", options, step.factory)
    try:
        versions = {library: version(library) for library in step.libraries}
    except PackageNotFoundError as error:
        raise ConfigError(f"quality step {name!r} needs the package {error.name}: pip install 'prep-assets[quality]'") from error
    filled = step.defaults | options
    own = sorted({path for value in options.values() if isinstance(value, Mapping) for path in value.values() if ":" in str(path)})
    recipe = {"action": action, "options": filled, "libraries": versions, **({"code": list(map(own_code_hash, own))} if own else {})}
    recipe |= {"version": step.version} if step.version > 1 else {}
    recipe |= {"package": code} if (code := added_code(step.factory.__module__)) else {}
    return Configured(name, action, lambda: step.factory(**options), recipe, bool(filled.get("across")), step.golds, step.clusters)


def corrupted_examples(examples: Sequence[Example]) -> Examples:
    """Corrupted examples with ids."""
    return Examples([f"corrupted:{number}" for number in range(len(examples))], examples)


def tried_on_itself(step: Configured, read: Callable[[Sequence[Example]], Examples] = corrupted_examples) -> list[tuple[str, bool]]:
    """The reason for which a step must find its `corrupted` examples wrong, and whether it does; none for a user's step.

    Args:
        read: gives the examples as a build of the domain reads them.
    """
    if step.name not in quality_steps():
        return []
    corrupted, reason = quality_steps()[step.name].corrupted
    at_work = step.make()
    at_work.learn([example for example in corrupted if isinstance(example, Prompt)])
    found = [at_work.judge(read(corrupted)).found, at_work.finish(np.ones(len(corrupted), bool)).found]
    return [(reason, any(reason == why for each in found for why, _ in each.values()))]


def _own_step(path: str, options: Mapping[str, Any]) -> Step:
    """A user's step: a function from `Examples` and its options to a reason for each example, `None` for those it keeps. It is called in a process apart."""
    whose = f"quality step {path!r}: its process"
    call_apart(whose, "", _loaded, path, options)

    def judge(examples: Examples) -> Judged:
        first, last = examples.ids[0], examples.ids[-1]
        on = first if len(examples) == 1 else f"a block from {first} to {last}"
        try:
            return call_apart(whose, on, _judged_by, path, options, examples)
        except Ended:
            for half in examples.halves:  # until one record is left to blame
                judge(half)
            raise

    return by_block(judge)


def _loaded(path: str, options: Mapping[str, Any]) -> None:
    function = own("quality step", path)
    try:
        inspect.signature(function).bind((), **options)
    except TypeError as error:
        raise ConfigError(f"quality step {path!r}: {error}; its signature is {inspect.signature(function)}") from error


def _judged_by(path: str, options: Mapping[str, Any], examples: Examples) -> Judged:
    must = "It must return a reason, a line of up to 100 printable characters, or None for each example"
    try:
        reasons = own("quality step", path)(examples, **options)
    except PrepAssetsError:
        raise
    except (Exception, SystemExit, GeneratorExit, KeyboardInterrupt) as error:  # a user's function may raise anything
        frame, block = extract_tb(error.__traceback__)[-1], f"a block from {examples.ids[0]} to {examples.ids[-1]}"
        raised = f"{''.join(format_exception_only(error)).strip()} ({frame.filename}, line {frame.lineno})"
        raise PrepAssetsError(f"quality step {path!r} raised {raised}, on {block}. {must}") from error
    is_list = isinstance(reasons, list | tuple)
    if not is_list or len(reasons) != len(examples):
        returned = f"{len(reasons):,} reasons" if is_list else type(reasons).__name__
        raise PrepAssetsError(f"quality step {path!r} returns {returned} for {len(examples):,} examples. {must}")
    for number, reason in enumerate(reasons):
        if reason is not None and not (isinstance(reason, str) and reason.strip() and reason.isprintable() and len(reason) <= 100):
            raise PrepAssetsError(f"quality step {path!r} returns {reason!r:.100} for {examples.ids[number]}. {must}")
    # a string of the user's own class would be read by the user's code
    return Judged({number: (str.__str__(reason), f"says {path}") for number, reason in enumerate(reasons) if reason is not None})
