"""Whether a trace with ids is whole: they hold all texts of its messages, and no words that neither these nor the template have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.proofs.source_fields import json_leaves
from prep_assets.proofs.verdict import Rule

_TAG = re.compile("</?[a-z_]+>")


@dataclass(frozen=True, slots=True)
class Turns:
    """One response with its prompt: what its model was given and wrote, and its conversation as the template writes it. Texts have no control tokens."""

    given: str
    wrote: str
    shown: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A group: its responses, and the messages of its row, those of sub-agents as well."""

    id: str
    rows: Sequence[Turns]
    messages: Sequence[Mapping[str, Any]]


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", _TAG.sub(" ", text)))


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message["content"]
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return [text for each in (*parts, message.get("reasoning", "")) if (text := each.strip())]


def _fault(trace: Trace, numbers: Counter[str]) -> str | None:
    everything = "\n".join(text for row in trace.rows for text in (row.given, row.wrote))
    answers = list[str]()
    numbers["traces_checked"] += 1
    for message in trace.messages:
        leaves = [leaf for call in message.get("tool_calls", ()) for leaf in (call["name"], *json_leaves(call["arguments"], sorts=False))]
        answers += _texts(message) if message["role"] == "assistant" else []
        for text in (*_texts(message), *leaves):
            numbers["texts_checked"] += 1
            if text not in everything and (text not in leaves or not _holds_escaped(everything, text)):
                return f"no id of it says {text[:60]!r}, a text of the {message['role']}"
    for number, row in enumerate(trace.rows):
        written, given = _words(row.shown), _words(row.given)
        for text in answers:
            if text in row.shown and text in row.wrote:
                written -= _words(text)
        numbers["words_checked"] += given.total()
        if more := given - written:
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
