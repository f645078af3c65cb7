"""Quality steps as a user writes them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from prep_assets.extensions.quality.steps import Examples


def short(examples: Examples, *, below: int = 4) -> Sequence[str | None]:
    """Answers of few words."""
    answers = [parts[-1][1] for parts in examples.parts]
    return ["short_answer" if len(answer.split()) < below else None for answer in answers]


def even(examples: Examples) -> Sequence[str | None]:
    """Every second row."""
    return ["even_row" if int(identity.rpartition(":")[2]) % 2 == 0 else None for identity in examples.ids]


def too_few(examples: Examples) -> Sequence[str | None]:
    """Forgets an example."""
    return [None] * (len(examples) - 1)


def bare(examples: Examples) -> str:
    """Returns a text as long as there are examples."""
    return "r" * len(examples)


def fails(examples: Examples) -> Sequence[str | None]:
    """Takes examples for rows."""
    return [{"text": example}["prompt"] for example in examples.texts]


def exits(examples: Examples) -> Sequence[str | None]:
    """Ends the process."""
    sys.exit(3)


def interrupts(examples: Examples) -> Sequence[str | None]:
    """Raises what Ctrl-C raises."""
    raise KeyboardInterrupt


def ends(examples: Examples, *, killed: bool = False) -> Sequence[str | None]:
    """Ends the process at one text."""
    if any("the end" in text for text in examples.texts):
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    return [None] * len(examples)


def exits_at_once(examples: Examples) -> Sequence[str | None]:
    """Ends the process, whatever it is asked."""
    os._exit(4)


def hashes(examples: Examples) -> Sequence[str | None]:
    """Goes by hashes, which are others in every process."""
    return [f"hash {hash(text)}" for text in examples.texts]


def first_of_block(examples: Examples) -> Sequence[str | None]:
    """Looks at what else is in the block."""
    return ["first" if at == 0 else None for at in range(len(examples))]


def sleeps(examples: Examples) -> Sequence[str | None]:
    """Waits for ever."""
    time.sleep(3600)
    return [None] * len(examples)


def goes_on(examples: Examples) -> Sequence[str | None]:
    """Ends its process when its time is over, as that does itself where a signal ends nothing."""
    try:
        time.sleep(3600)
    except BaseException:
        os._exit(1)
    return [None] * len(examples)


def computes(examples: Examples) -> Sequence[str | None]:
    """A call in C that no signal ends."""
    return [None] * (len(examples) + 0 * sum(range(10**12)))


def comes_back_twice(examples: Examples) -> Sequence[str | None]:
    """Forks, and goes on in both processes."""
    return [None if os.fork() else "of the fork"] * len(examples)


class Word(str):
    """A text of the user's own class, which is no slug where it is read again."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return (sys.exit, (3,))


def own_texts(examples: Examples) -> Sequence[str | None]:
    """Reasons of a class of its own."""
    return [Word("own") for _ in examples.texts]


def raises_unsaid(examples: Examples) -> Sequence[str | None]:
    """An error whose text cannot be had."""

    class Unsaid(Exception):
        def __str__(self) -> str:
            raise ValueError(self)

    raise Unsaid


def gives(examples: Examples, *, what: Any = None) -> Sequence[Any]:
    """Returns what the options say."""
    return [float("nan") if what == "nan" else what for _ in examples.texts]


def says_yes(answer: str, gold: str) -> float:
    """A verifier of one's own: it wants the word yes in both."""
    return float("yes" in answer and "yes" in gold)


def says_nothing(answer: str, gold: str) -> bool:
    """A verifier of one's own that ends the process."""
    os._exit(3)


def says_one_of(answer: str, gold: str, words: Sequence[str]) -> bool:
    """A verifier of one's own that is told something."""
    return answer in words
