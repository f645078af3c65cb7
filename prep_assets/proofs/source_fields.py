"""Fields of messages and of their parts: which hold texts, weights and calls; and the rules of columns by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any

from prep_assets.samples import Group, Pair, Prompt, Row, Sample

REASONINGS = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan", "Complex_CoT")
CALLS = ("tool_calls", "function_call", "function_calls")
CALLERS = ("tool_call", "function_call")
ROLES: Mapping[str, str] = {
    **dict.fromkeys(("assistant", "gpt", *CALLERS, "completion", "chosen", "rejected"), "assistant"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "tool_response", "ipython"), "tool"),
}
"""Tag → role; any other is the user's, unless a definition names it."""
KNOWN = frozenset(ROLES.values())
WEIGHTS = ("loss_weight", "weight", "loss_mask", "loss_scale", "train", "training", "loss")
STRETCHES = ("train_detail", "training_detail")
FIELDS_OF_MESSAGES = frozenset(
    (
        *("role", "from", "type", "name", "tool_call_id", "call_id", "tool_use_id", "status", "signature", "prefix", "format"),
        "encrypted_content",
    )
)
"""Fields of messages and their parts that are no texts."""

NOTHING: tuple[object, ...] = (None, "", [], {})
"""Values of fields that say nothing."""


class Unlike(Exception):
    """A row that is not as its definition says, so that it cannot be compared."""


def weight_of(fields: Row) -> float | None:
    """The loss weight that a row, a message or a part gives itself; `None` where it gives none."""
    return next((float(fields[key]) for key in WEIGHTS if isinstance(fields.get(key), bool | int | float)), None)


def pieces_of(text: str, stretches: Sequence[Row]) -> Iterator[tuple[str, float]]:
    """Yield the stretches of a text, from ``begin_offset`` to ``end_offset``, both within, and what lies between them, which is not trained."""
    at = 0
    for stretch in sorted(stretches, key=lambda each: int(each["begin_offset"])):
        yield text[at : stretch["begin_offset"]], 0.0
        yield text[stretch["begin_offset"] : (at := stretch["end_offset"] + 1)], float(stretch["train"])
    yield text[at:], 0.0


def is_call(text: str) -> bool:
    """Whether a text is the JSON of calls, and nothing else."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return False
    calls = [parsed] if isinstance(parsed, Mapping) else parsed
    return isinstance(calls, list) and bool(calls) and all(isinstance(call, Mapping) and {"name", "function"} & {*call} for call in calls)


OFFERED = frozenset(("chat_template_kwargs", "documents"))
"""Columns of what a template is given beside turns and tools; `NOTHING` is none."""


def offered_fault(row: Row, example: object) -> str:
    """Return how an example has other documents or template options than its row; ``""`` where it has not, and where its kind has none."""
    if not isinstance(example, Sample | Pair | Prompt | Group):
        return ""
    options, documents = (by_message(row.get(key)) for key in ("chat_template_kwargs", "documents"))
    options = (json.loads(options) if options.strip() else {}) if isinstance(options, str) else options
    wanted = {key: value for key, value in (options or {}).items() if value not in NOTHING}
    for name, said, made in (
        ("template options", wanted, example.template_options),
        ("documents", [*(documents or ())], [*example.documents]),
    ):
        if _without_nulls(said) != _without_nulls(made):
            return f"its {name} are {said!r:.200}, and its schema gives {made!r:.200}"
    return ""


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [*map(_without_nulls, value)] if isinstance(value, list | tuple) else value


def is_wrapped(tool: Row) -> bool:
    """Whether a tool that has a name has the wrapper ``{"type": "function", "function": …}`` once, as templates expect it."""
    function = tool.get("function")
    return "function" not in function if isinstance(function, Mapping) else "name" not in tool


def as_text(value: Any) -> Any:
    """Text of a binary column as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def by_message(value: Any) -> Any:
    """Messages that are stored as columns of lists, one by one."""
    if not isinstance(value, Mapping) or not value or not all(isinstance(column, list) for column in value.values()):
        return value
    rows = zip(*value.values(), strict=True)
    return [{key: each for key, each in zip(value, row, strict=True) if each is not None} for row in rows]


def json_leaves(value: Any, sorts: bool = False) -> Iterator[str]:
    """Yield keys and values of JSON as they are written, in their order, or sorted by key as Jinja's ``dictsort`` sorts them."""
    if isinstance(value, Mapping):
        for key, inner in sorted(value.items(), key=lambda item: str(item[0]).lower()) if sorts else value.items():
            yield str(key)
            yield from json_leaves(inner, sorts)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from json_leaves(inner, sorts)
    elif value is not None:
        yield value if isinstance(value, str) else json.dumps(value)


def in_call_order(messages: Sequence[Any], role: Callable[[Any], str]) -> Iterable[Any]:
    """Yield messages, the results behind an answer in the order of its calls, where all of both have ids."""
    if not any(isinstance(message, Mapping) and message.get("tool_call_id") for message in messages):
        return messages
    ordered, run_before = list[Any](), list[Any]()
    for of_tool, run in groupby(messages, key=lambda message: role(message) == "tool"):
        listed = list(run)
        if of_tool:
            latest = [call.get("id") for message in run_before for call in _listed_calls(message)]
            answered = [message.get("tool_call_id") for message in listed]
            if None not in latest and None not in answered:
                listed.sort(key=lambda message: [at for at, each in enumerate(latest) if each == message["tool_call_id"]])
        run_before = [*reversed([*takewhile(lambda message: role(message) == "assistant", reversed(listed))])]
        ordered += listed
    return ordered


def _listed_calls(message: Row) -> list[Row]:
    held = [message[key] for key in CALLS if message.get(key)]
    parts = message["content"] if isinstance(message.get("content"), list) else []
    parsed = [json.loads(calls) if isinstance(calls, str) else calls for calls in held]
    calls = [call for each in parsed for call in ([each] if isinstance(each, Mapping) else each)]
    return [*calls, *(part for part in parts if part.get("type") in ("tool_use", "tool_call"))]


def step_rewards(schema: str, options: Mapping[str, Any], row: Row) -> list[float] | None:
    """Return the rewards of the steps of a row's one solution: its labels, or 1 for ``+`` and 0 for ``-`` in place of each tag. `None` for other schemas."""
    if schema == "stepwise":
        return [*map(float, row[options.get("labels_key", "labels")])]
    if schema != "math_shepherd":
        return None
    steps = row[options.get("input_key", "input")].split(options.get("tag", "ки"))[:-1]
    places = accumulate(len(step) + 1 for step in steps)
    return [float(row[options.get("label_key", "label")][place - 1] == "+") for place in places]


def worked_pieces(value: str) -> list[str]:
    return re.sub(r"<<[^>]*>>", "", value).split("####")
