"""`sniff` finds the schema that fits given rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from prep_assets.errors import Refused
from prep_assets.extensions.rl.schemas import nested
from prep_assets.samples import MEDIA, Example, Sample
from prep_assets.schemas.fields import decides, has_content
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import Schema, convert_with, schemas
from prep_assets.schemas.turns import OPENAI_ROLES

# Sniffing: every registered schema is tried on the rows, and general ones also with options that name the rows' columns and roles.


class Fit(Struct, frozen=True):
    """How well one schema fits some rows.

    Attributes:
        schema: its name.
        options: the options that it was tried with; empty for the defaults.
        ignore: fields that it was tried without, as the rows are rejected otherwise.
        fitting: number of rows that it converts.
        rows: number of rows tried.
        unread: fields of converted rows that it does not read and that are not known to be safe to ignore, in the order of their first
            appearance.
        passed_over: fields that it does not read, and whose names show that nothing is lost without them.
        refusal: the first rejection as ``reason: detail``; ``""`` where every row fits.
        left_out: path → number of rows with content there, and one value, for each field of `unread` and `ignore`.
        example: the first converted row.
        txt: ``file`` where each file is one row.
    """

    schema: str
    fitting: int
    rows: int
    unread: tuple[str, ...]
    passed_over: tuple[str, ...]
    refusal: str
    options: Mapping[str, Any] = {}
    ignore: tuple[str, ...] = ()
    left_out: Mapping[str, tuple[int, Any]] = {}
    example: Example | None = None
    txt: str = ""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The unread fields whose names say that they decide what is trained or asked."""
        return tuple(path for path in self.unread if decides(path))


def sniff(payloads: Sequence[Mapping[str, Any]]) -> list[Fit]:
    """How well each registered schema fits `payloads`, best first.

    A schema of `GENERAL` is also tried with options that name the rows' columns and roles, where that converts more rows or reads more fields.

    The order is by most rows converted, then fewest fields unread, then general schemas before those for a special purpose, then by name.
    """
    fits = [_with_options(schema, _fit(schema, payloads), payloads) for schema in schemas().values()]
    return sorted(fits, key=_rank)


def _rank(fit: Fit) -> tuple[Any, ...]:
    unread = len(fit.unread) + len(fit.ignore) + len(fit.passed_over)
    is_special = max(specialty(fit.schema), int(fit.schema == "llava" and not _has_media(fit.example)))
    general: float = GENERAL.index(fit.schema) if fit.schema in GENERAL else len(GENERAL)
    if fit.schema == "rl_prompt" and "verifier" not in fit.options:  # an answer that is a number is a gold, and no text to train on
        general = GENERAL.index("alpaca") - 0.5
    proposed = general if fit.options or not fit.fitting else -1
    return -fit.fitting, len(fit.decisive), unread, is_special, proposed, len(fit.options), fit.schema


def _has_media(example: Example | None) -> bool:
    return isinstance(example, Sample) and any(region.kind in MEDIA for turn in example.turns for region in turn.regions)


def _fit(
    schema: Schema, payloads: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None, ignore: Sequence[str] = ()
) -> Fit:
    account = Account(ignore, trained=True)
    reader = Reader(convert_with(schema.name, options), account)
    fitting, rejection, example = 0, "", None
    for payload in payloads:
        try:
            converted = apply(reader, payload)
        except Refused as error:
            rejection = rejection or str(error)
        else:
            fitting, example = fitting + 1, example or converted
    left_out = {path: (account.unknown[path], account.examples[path]) for path in account.unknown}
    left_out |= {path: (account.counts[path], next((row[path] for row in payloads if row.get(path)), None)) for path in ignore}
    passed_over = tuple(path for path in account.counts if path not in ignore)
    unread = tuple(account.unknown)
    return Fit(schema.name, fitting, len(payloads), unread, passed_over, rejection, options or {}, tuple(ignore), left_out, example)


GENERAL = ("messages", "sharegpt", "alpaca", "gsm8k", "preference", "alpaca_pairwise", "kto", "rl_prompt", "contrastive", "text")
"""Schemas that are tried with options, in the order in which they are proposed."""
_ASKED = ("instruction", "question", "problem", "prompt", "query", "input", "user", "ask", "q")
_ANSWERED = ("output", "response", "solution", "answer", "completion", "reply", "assistant", "target", "a")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "messages_key": ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns"),
    **dict.fromkeys(("prompt_key", "question_key"), _ASKED),
    **dict.fromkeys(("response_key", "answer_key"), _ANSWERED),
    "gold_key": ("gold", "ground_truth", "reward_model.ground_truth", "final_answer", "answer", "solution"),
    "chosen_key": ("chosen", "preferred", "accepted", "better"),
    "rejected_key": ("rejected", "dispreferred", "worse"),
    "query_key": ("input", "context"),
    "system_key": ("system", "system_prompt", "system_message", "persona"),
    "verifier_key": ("verifier",),
    "text_key": ("text", "content", "document", "body", "article"),
    "tools_key": ("tools", "functions", "available_tools"),
}
"""Option → names that columns for it have in public data sets, in any case, the likeliest first."""
ROLES = {
    **dict.fromkeys(("user", "human", "prompter", "question", "customer"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "ai", "chatgpt", "answer", "agent"), "assistant"),
    **dict.fromkeys(("tool", "observation", "tool_response", "function_response", "ipython"), "tool"),
    **dict.fromkeys(("system", "developer"), "system"),
}
"""Words for roles in public data sets, in any case, and what they mean."""


def _with_options(schema: Schema, plain: Fit, payloads: Sequence[Mapping[str, Any]]) -> Fit:
    """The best of a fit and of those with other columns, roles and ignored fields."""
    if schema.name not in GENERAL or (plain.fitting == plain.rows and not plain.unread):
        return plain
    best, columns = plain, _columns_of(payloads)
    named: dict[str, Any] = {}
    for option in (option for option in schema.options if option in COLUMNS):
        default, taken = schema.options[option].default, {*named.values()}
        column = next((columns[name] for name in COLUMNS[option] if name in columns and columns[name] not in taken), None)
        if column is not None and column != default and (default is None or default not in columns.values()):
            named[option] = column
    tries: list[dict[str, Any]] = [named] if named else []
    if "roles" in schema.options and (roles := _roles_of(payloads, plain)):
        tries += [{"roles": roles}, {**named, "roles": roles}]
    if "role_tag" in schema.options:
        tries += [named | tags for tags in _tags_of(payloads, str(named.get("messages_key", "conversations")))]
    if "gold_key" in named and all(re.search("[0-9]", str(_value_of(payload, named["gold_key"]))) for payload in payloads):
        tries += [{**named, "verifier": "math"}]  # golds that are no plain numbers, such as fractions
    for options in tries:
        best = min(best, _fit(schema, payloads, options), key=_rank)
    rejected = UNSUPPORTED.match(best.refusal)
    if rejected and not best.fitting and not decides(rejected[1]):
        best = min(best, _fit(schema, payloads, best.options, (rejected[1],)), key=_rank)
    return best


def _value_of(payload: Mapping[str, Any], column: str) -> Any:
    try:
        return nested(payload, column)
    except Refused:
        return None


UNSUPPORTED = re.compile(r"unsupported_column: the record has '([^']+)'")


def _columns_of(payloads: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Lower-case name → name of each column with content, those inside objects with a dot."""
    columns: dict[str, str] = {}
    for payload in payloads:
        for name, value in payload.items():
            if has_content(value):
                columns.setdefault(name.lower(), name)
                for inner in value if isinstance(value, Mapping) else ():
                    columns.setdefault(f"{name}.{inner}".lower(), f"{name}.{inner}")
    return columns


def _roles_of(payloads: Sequence[Mapping[str, Any]], plain: Fit) -> dict[str, str]:
    """Words for roles that the rows have and OpenAI does not → the role that each means."""
    if not plain.refusal.startswith("unknown_role"):
        return {}
    words = {
        message["role"]
        for payload in payloads
        for value in payload.values()
        for message in (value if isinstance(value, list) else ())
        if isinstance(message, Mapping) and isinstance(message.get("role"), str)
    }
    return {word: ROLES[word.lower()] for word in sorted(words) if word not in OPENAI_ROLES and word.lower() in ROLES}


_TAGS = {"user": "user_tag", "assistant": "assistant_tag", "system": "system_tag", "tool": "observation_tag"}


def _tags_of(payloads: Sequence[Mapping[str, Any]], column: str) -> list[dict[str, str]]:
    """Options of `sharegpt` for messages that have a role and a text under other names, such as ``speaker`` and ``utterance``; empty for others."""
    messages = [message for payload in payloads for message in payload.get(column) or () if isinstance(message, Mapping)]
    names = [name for name in (messages[0] if messages else ()) if all(isinstance(message.get(name), str) for message in messages)]
    role = next((name for name in names if all(message[name].lower() in ROLES for message in messages)), None)
    if role is None:
        return []
    words = {_TAGS[ROLES[message[role].lower()]]: message[role] for message in messages}
    return [{"role_tag": role, "content_tag": name, **words} for name in names if name != role]


def by_columns(payloads: Sequence[Mapping[str, Any]]) -> Fit | None:
    """The schema for a table whose names of columns say nothing: its two longest columns of text as a question and its answer; `None` for other rows."""
    lengths = {
        name: sum(len(str(payload[name])) for payload in payloads)
        for name in payloads[0]
        if all(isinstance(payload.get(name), str) for payload in payloads)
    }
    columns = [name for name in lengths if name in sorted(lengths, key=lengths.__getitem__)[-2:]]
    if len(columns) < 2:
        return None
    fit = _fit(schemas()["alpaca"], payloads, dict(zip(("prompt_key", "response_key"), columns, strict=True)))
    return fit if fit.fitting else None


def specialty(name: str) -> int:
    """0 for general schemas; 1 for another project's hook or handler, or a special reading of rows that a general schema reads too; 2 for one that
    turns rows of other kinds into pretraining text."""
    if name.endswith("PretrainHandler"):
        return 2
    return int("_hook" in name or name.endswith("Handler") or name in ("common_words_mask", "sections", "anthropic"))


# Forms of files that rows show, so that a reader learns what a file is.

_EVENTS: tuple[Callable[[Mapping[str, Any]], bool], ...] = (
    lambda row: "type" in row and not {"sessionId", "session_id", "leafUuid"}.isdisjoint(row),  # Claude Code
    lambda row: "payload" in row and row.get("type") in ("session_meta", "response_item", "event_msg", "turn_context"),  # Codex
    lambda row: row.get("type") == "session" and "cwd" in row,  # Pi
)


def are_events(payloads: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows are events of a session of a coding agent, whose file is one record."""
    return any(is_event(row) for row in payloads for is_event in _EVENTS)


def known_form(payloads: Sequence[Mapping[str, Any]]) -> str:
    """What rows are that schemas of other rows would take for documents; ``""`` if that is not known."""
    return _one_message_a_row(payloads)


def _one_message_a_row(payloads: Sequence[Mapping[str, Any]]) -> str:
    """What rows are of which each has one text and one role, of both sides of a chat; ``""`` for other rows."""
    for column, value in (payloads[0] if payloads else {}).items():
        words = [payload.get(column) for payload in payloads]
        if not isinstance(value, str) or not all(isinstance(word, str) and word.lower() in ROLES for word in words):
            continue
        if {"user", "assistant"} <= {ROLES[str(word).lower()] for word in words}:
            return (
                f"a table of messages, one a row, whose column {column!r} says who speaks. A record is a whole chat: join the rows of each into one with a "
                "list of messages, as docs/add-a-data-set.md shows under 'One message a row'"
            )
    return ""
