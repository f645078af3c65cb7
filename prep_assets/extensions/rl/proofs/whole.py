"""Whether a trace with ids is whole: they hold all texts of its messages, and no words that neither these nor the template have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from prep_assets.proofs.source_fields import json_leaves
from prep_assets.proofs.verdict import Rule

_TAG = re.compile("</?[a-z_]+>")


@dataclass(frozen=True, slots=True)
class Turns:
    """One response with its prompt: what its model was given and wrote, and its conversation as the template writes it. Texts have no control tokens.
    A later row of a run, as of a sub-agent, may begin with another prompt than its group."""

    given: str
    wrote: str
    shown: str
    later: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """A group: its responses, and the messages of its row, those of sub-agents as well."""

    id: str
    rows: Sequence[Turns]
    messages: Sequence[Mapping[str, Any]]


def _words(text: str, pattern: str = r"\w+") -> Counter[str]:
    return Counter(re.findall(pattern, _TAG.sub(" ", text)))


def _beside(row: Turns, answers: Sequence[str], others: Sequence[str] = (), pattern: str = r"\w+") -> Counter[str]:
    """The words that a model was given, and neither the template nor messages have, apart from answers that it wrote and others that it was not given."""
    written = _words(row.shown, pattern)
    for text in (*(text for text in answers if text in row.wrote), *others):
        if text in row.shown:
            written -= _words(text, pattern)
    return _words(row.given, pattern) - written


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message["content"]
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return [text for each in (*parts, message.get("reasoning", "")) if (text := each.strip())]


def _answers(trace: Trace) -> list[str]:
    return [text for message in trace.messages if message["role"] == "assistant" for text in _texts(message)]


def is_whole(trace: Trace) -> bool | None:
    """Whether messages and ids of a trace say the same, and nothing is more in the ids. `None` where nobody can tell: only marks are more, or a text stands
    in the ids less often than in the conversation as the template writes it."""
    answers, texts = _answers(trace), [text for message in trace.messages for text in _texts(message)]
    if any(_beside(row, answers) for row in trace.rows):
        return False
    asked = [text for message in takewhile(lambda said: said["role"] != "assistant", trace.messages) for text in _texts(message)]
    for row in trace.rows:
        others, said = [text for text in asked if row.later and text not in row.given], f"{row.given}\n{row.wrote}"
        if any(said.count(text) < row.shown.count(text) - (text in others) for text in texts):
            return None
        if _beside(row, answers, others, r"\S+"):
            return None
    return True


def _fault(trace: Trace, numbers: Counter[str]) -> str | None:
    everything = "\n".join(text for row in trace.rows for text in (row.given, row.wrote))
    answers = _answers(trace)
    numbers["traces_checked"] += 1
    for message in trace.messages:
        leaves = [leaf for call in message.get("tool_calls", ()) for leaf in (call["name"], *json_leaves(call["arguments"], sorts=False))]
        for text in (*_texts(message), *leaves):
            numbers["texts_checked"] += 1
            if text not in everything and (text not in leaves or not _holds_escaped(everything, text)):
                return f"no id of it says {text[:60]!r}, a text of the {message['role']}"
    for number, row in enumerate(trace.rows):
        numbers["words_checked"] += _words(row.given).total()
        if more := _beside(row, answers):
            return f"response {number}: its model was given {' '.join(more)[:80]!r}, which no message says"
    return None


def _holds_escaped(text: str, leaf: str) -> bool:
    return any(form in text for form in (repr(leaf)[1:-1], leaf.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")))


check_whole = Rule(
    _fault,
    ("traces_checked", "texts_checked", "words_checked"),
    "{texts_checked:,} texts of {traces_checked:,} traces stand in their ids, which say no other of {words_checked:,} words".format_map,
    nothing="no group is of traces that say all that their ids do",
)
