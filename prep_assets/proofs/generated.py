"""What a model generates of a conversation, by definition: the prefix property of chat templates.

Turn k is what the render of the first k + 1 messages adds to what the model is given, the render of the first k with the generation prompt:

    given      <|user|>\\nHi<|end|>\\n<|assistant|>\\n
    with turn  <|user|>\\nHi<|end|>\\n<|assistant|>\\nHello!<|end|>\\n
    whole      <|user|>\\nHi<|end|>\\n<|assistant|>\\nHello!<|end|>\\n<|user|>\\nBye<|end|>\\n

Both must be prefixes of the whole render. White space that a template writes after the stop is not generated. No text is searched for, and no
border is guessed. The property does not hold where a later turn changes how an earlier one is written, as Qwen3 drops its reasoning, or where an answer does
not go on from the prompt, as DeepSeek-R1's without reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Range = tuple[int, int]
Beginning = Callable[[int, bool], str | None]
"""Number of messages, and whether the generation prompt follows → their render; `None` where the template raises."""


def generated(whole: str, turn: int, beginning: Beginning) -> Range | None:
    """Return start and end of what the model generates of a turn, stop included; `None` where the prefix property does not hold.

    Args:
        whole: the render of all messages.
        turn: number of the turn, an answer.
    """
    given, after = beginning(turn, True), beginning(turn + 1, False)
    if given is None or after is None:
        return None
    if not (whole.startswith(given) and after.startswith(given) and whole.startswith(after.rstrip())):
        return None
    end = len(after.rstrip())
    return (len(given), end) if end > len(given) else None


def served(whole: str, given: str | None) -> bool:
    """Whether a server gives the model what stands before an answer; true where the template raises for a prompt.

    Args:
        given: the render of the messages before the answer, with the generation prompt.
    """
    return given is None or whole.startswith(given)


def stop_within(text: str, control: re.Pattern[str], *, is_text: bool, plain: tuple[str, str]) -> Range | None:
    """Return start and end of the stop in what a model generates after the last text of a turn: the first run of control tokens; after reasoning or a call,
    where closing brackets may stand before it, the stop of plain answers, else the last token. `None` if there is none.

    Args:
        plain: the stop of a chat that ends with a plain answer, and what stands behind it.
    """
    tokens = [token.span() for token in control.finditer(text)]
    if not tokens or (is_text and text[: tokens[0][0]].strip()):
        return None
    if not is_text:
        stop, behind = plain
        start = len(text) - len(stop) - len(behind)
        return (start, start + len(stop)) if stop and text.endswith(stop + behind) else tokens[-1]
    start, end = tokens[0]
    for low, high in tokens[1:]:
        end = high if low == end else end
    return start, end
