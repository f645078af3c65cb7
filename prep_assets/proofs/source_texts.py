"""What the rows of a source say must stand in the store: their texts, on their side, in their order, as often. It shares no code with schemas and renders.

A row is read by `source_table`: which column is whose text, and what becomes of it. Each of its texts is then looked for in the decoded record.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby, takewhile
from typing import Any, NamedTuple

from msgspec import Struct, field

from prep_assets.proofs.formats import without
from prep_assets.proofs.source_table import NAMES, TABLE, VARIANTS

Row = Mapping[str, Any]
TEXT, REASONING, CALL, TOOL, ANYWHERE, EXACT = "text", "reasoning", "call", "tool", "anywhere", "exact"
ANSWERS = ("chosen", "rejected", "responses", "completion")
"""Sides that answer a prompt."""
ASIDE = ("gold", "verifier", "arguments", "label", "instruction", "query", "positives", "negatives")
"""Fields of lines beside a prompt and answers."""
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan", "Complex_CoT")
_CALL_FIELDS = ("tool_calls", "function_call", "function_calls")
_CALLERS = ("tool_call", "function_call")
_ASSISTANTS = frozenset(("assistant", "gpt", *_CALLERS, "completion", "chosen", "rejected"))
_SYSTEMS = frozenset(("system", "developer"))
_RESULTS = frozenset(("tool", "function", "observation", "tool_response", "ipython"))
_WEIGHTS = ("loss_weight", "weight", "loss_mask", "loss_scale", "train", "training", "loss")
_STRETCHES = ("train_detail", "training_detail")
_FIELDS_OF_MESSAGES = frozenset(
    (
        "role",
        "from",
        "type",
        "name",
        "tool_call_id",
        "call_id",
        "tool_use_id",
        "status",
        "signature",
        "prefix",
        "format",
        "encrypted_content",
    )
)
"""Fields of messages and their parts that are no texts."""


class Said(NamedTuple):
    """A text of a row.

    Attributes:
        path: where it stands in the row.
        side: whose record or field of a line holds it; ``""`` for the one conversation, and for what may stand anywhere.
        turn: number of its turn. Texts of one kind stand in their order within a turn, and all of them behind the turns before.
        kind: `TEXT`, `REASONING`, `CALL` (a name, a key or a value of a tool call), `TOOL`, `ANYWHERE` or `EXACT` (all that its side holds).
        text: the text.
        weight: the loss weight that the row gives it; `None` where its role decides.
        role: who says it.
    """

    path: str
    side: str
    turn: int
    kind: str
    text: str
    weight: float | None = None
    role: str = ""

    @property
    def is_answer(self) -> bool:
        """Whether a model answers with it."""
        return self.role in ("assistant", "completion", "words")


EARLIER = "earlier"
"""The role of an answer in a prompt, which is not trained."""


class Policy(NamedTuple):
    """What decides which texts are trained, where the row does not say it.

    Attributes:
        trains: which roles are trained, and which are not.
        calls: whether tool calls are trained.
        last_only: whether the last trained turn alone is trained.
    """

    trains: Mapping[str, bool] = {}
    calls: bool = True
    last_only: bool = False

    def weight(self, said: Said, *, by_role: bool) -> float | None:
        """Return the loss weight that a text must have; `None` where that is not known. `by_role`: roles decide where it stands."""
        if said.kind == CALL and not self.calls:
            return 0.0
        trained = self.trains.get(said.role) if by_role else None
        weight = said.weight if said.weight is not None or trained is None else float(trained)
        return None if weight and self.last_only else weight


NO_POLICY = Policy()


class Unlike(Exception):
    """A row that is not as its entry says, so that it cannot be compared."""


class Column(NamedTuple):
    """An item of an entry: role, names of the column, of which a row has one at most, and rule."""

    role: str
    names: tuple[str, ...]
    rule: str


def columns_of(entry: str, options: Mapping[str, Any]) -> list[Column]:
    """Return the columns of an entry of the table, with the names that the options give them."""
    columns = []
    for item in entry.split():
        role, _, rest = item.partition(":")
        rest, _, rule = rest.partition(">")
        keys, _, default = rest.partition("=")
        given = [options[key] for key in keys.split(",") if key in options]
        names = tuple(default.split(",")) if not given else tuple(given[0]) if isinstance(given[0], list | tuple) else (given[0],)
        columns.append(Column(role, tuple(name for name in names if name), rule))
    return columns


def flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a schema with those of ModelLink's ``map_keys`` beside the others."""
    mapped = dict(options.get("map_keys") or {})
    tags = mapped.pop("tags", None) or {}
    return {**options, **{f"{key}_key": column for key, column in mapped.items()}, **tags}


_PLAIN_ROLES = ("system", "user", "assistant", "prompt", "completion", "document", "chat", "chosen", "rejected")


class Reading(Struct, dict=True):
    """Reads rows of one schema by its entry.

    Attributes:
        schema: its name; one without an entry is of a user, whose strings may stand anywhere.
        options: its options.
        gives: the name of the type that a row becomes in this store.
        tags: opening and closing marks of reasoning in an answer.
        ignore: paths that the configuration leaves out.
        chosen_by: columns by which the configuration chooses rows.
        calls: whether calls between tags at the end of an answer are calls.
        sorts: whether the template writes the arguments of calls sorted by name.
    """

    schema: str
    options: Mapping[str, Any]
    gives: str
    tags: Sequence[Sequence[str]] = ()
    ignore: frozenset[str] = frozenset()
    chosen_by: frozenset[str] = frozenset()
    calls: bool = False
    sorts: bool = False
    columns: list[Column] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.options = flat(self.options)
        self.schema = VARIANTS.get((self.schema, self.gives), self.schema)
        self.columns = columns_of(TABLE.get(self.schema, ""), self.options)
        self.known = self.schema in TABLE
        self.paired = self.gives != "Sample" and not any(column.role == "label" for column in self.columns)
        roles = self.options.get("roles") or {}
        own = [self.options[key] for key in ("assistant_tag", "function_tag") if key in self.options]
        self.assistants = _ASSISTANTS.union(own, (tag for tag, role in roles.items() if role == "assistant"))
        self.systems = _SYSTEMS.union([self.options.get("system_tag", "system")])
        self.results = _RESULTS.union([self.options.get("observation_tag", "tool")])
        self.callers = {*_CALLERS, self.options.get("function_tag", "function_call")}
        named = {suffix: [str(value) for key, value in self.options.items() if key.endswith(suffix)] for suffix in _FIELD_OPTIONS}
        self.role_keys = (*named["role_key"], *named["role_tag"], "role", "from", "type")
        self.content_keys = (*named["content_key"], *named["content_tag"], "content", "value")
        self.file_keys = {*named["images_key"], *named["image_key"], *named["videos_key"], *named["audios_key"]}
        self.tool_keys = {*named["tools_key"]}
        self._roles = dict.fromkeys(self.assistants - self.callers, "assistant") | dict.fromkeys(("user", "human"), "user")
        self._roles |= dict.fromkeys(self.systems, "system") | dict.fromkeys(self.results, "tool")
        self._plans: dict[tuple[str, ...], list[tuple[str, str]] | None] = {}
        self._mark = re.compile("|".join(re.escape(tag) for pair in self.tags for tag in pair) or "(?!)")

    def plain(self, row: Row) -> list[tuple[str, str]] | None:
        """Return texts and roles of a row of strings and messages of two strings each, in order; `None` for any other row. Most rows are plain."""
        names = tuple(row)
        if names not in self._plans:
            self._plans[names] = self._plan(names)
        if (plan := self._plans[names]) is None:
            return None
        said = list[tuple[str, str]]()
        for name, role in plan:
            value = row[name]
            if type(value) is str and role == "worked":
                said += [(piece, "assistant") for piece in _worked(value) if piece.strip()]
            elif type(value) is str and role:
                said.append((value, role))
            elif type(value) is list and role in ("chat", "user", "chosen", "rejected"):
                try:
                    by = ("role", "content") if value and "role" in value[0] else ("from", "value")
                    tags, texts = [message[by[0]] for message in value], [message[by[1]] for message in value]
                    roles = [self._roles[tag] for tag in tags]
                except (KeyError, TypeError):
                    return None
                if {*map(len, value)} != {2} or {*map(type, texts)} != {str}:
                    return None
                if role == "user":
                    roles = [EARLIER if its == "assistant" else its for its in roles]
                elif role != "chat" and {*roles} != {"assistant"}:
                    return None
                elif role != "chat":
                    roles = [role] * len(roles)
                said += zip(texts, roles, strict=True)
            elif value:
                return None
        return said

    def _plan(self, names: Sequence[str]) -> list[tuple[str, str]] | None:
        """Return the columns with texts and their roles, in order, a column without a role where it must be empty; `None` for a user's schema."""
        plan, left = list[tuple[str, str]](), {*names} - self.ignore - self.chosen_by
        for column in self.columns:
            for name in column.names:
                if name in left:
                    is_text = column.rule in ("", "beside_files", "unless_sampled", "side") and column.role in _PLAIN_ROLES
                    its_role = column.role if is_text and (column.rule != "side" or "prompt" in names) else ""
                    plan.append((name, "worked" if (column.role, column.rule) == ("assistant", "worked") else its_role))
                    left.remove(name)
        skipped = {name for name in left if NAMES.get(name) == "skip" and name != "chat_template_kwargs"}
        further = [(name, "") for name in sorted(left - skipped)]
        return [*plan, *further] if self.known else None

    def texts(self, row: Row) -> list[Said]:
        """Return what a row says, in the order of its entry.

        Raises:
            Unlike: the row is not as its entry says.
        """
        try:
            return _Walk(self, without(row, sorted(self.ignore))).all()
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise Unlike(f"it cannot be read by the entry of {self.schema}: {type(error).__name__}: {error}") from error


_FIELD_OPTIONS = ("role_key", "role_tag", "content_key", "content_tag", "images_key", "image_key", "videos_key", "audios_key", "tools_key")


class _Walk:
    """One row on its way through its entry."""

    def __init__(self, reading: Reading, row: Row) -> None:
        self.reading, self.row, self.options = reading, row, reading.options
        self.said, self.turn, self.seen = list[Said](), 0, set[str]()
        self.side, self.prompt = "", "prompt" if reading.paired else ""
        self.marks = self._marks()
        self.answers: dict[str, str] = {"first": "chosen", "second": "rejected"}

    def all(self) -> list[Said]:
        """Everything that the row says."""
        reading, row = self.reading, self.row
        for role, names, rule in reading.columns:
            if "." in names and rule in ("", "sections", "request"):  # the whole row
                self.seen.update(row if role == "skip" or rule == "sections" else ())
                if rule:
                    RULES[rule](self, row, role, "")
                continue
            for name in names:
                found = self._found(name)
                if found is not None:
                    self._column(role, name, found, rule)
        for name, value in row.items():
            if name not in (*self.seen, *reading.ignore, *reading.chosen_by) and value is not None:
                self._other(name, value)
        weighs = {name: value for name, value in row.items() if name not in (*reading.ignore, *reading.chosen_by)}
        if (weight := _weight(weighs)) not in (None, 1):  # that of all answers, times that of their parts
            self.said = [
                each._replace(weight=weight * (1.0 if each.weight is None else each.weight)) if each.is_answer else each
                for each in self.said
            ]
        return self.said

    def _found(self, name: str) -> Any:
        """The value of a column, or at a dotted path; `None` where it is ignored or not there."""
        if name in self.reading.ignore:
            return None
        if self.row.get(name) is not None or "." not in name:
            self.seen.add(name)
            return self.row.get(name)
        value: Any = self.row
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else [each.get(key) for each in value] if isinstance(value, list) else None
        self.seen.add(name.partition(".")[0])
        return value

    def _column(self, role: str, name: str, value: Any, rule: str) -> None:
        if role in ("skip", "unread"):
            return
        RULES[rule or "text"](self, value, role, name)

    # A text, in pieces.

    def say(self, text: str, role: str, path: str, *, kind: str = TEXT, weight: float | None = None) -> None:
        """Add a text, cut at the marks of files and of reasoning."""
        role = self.answers.get(role, role)
        side = role.partition("[")[0]
        spoken = "assistant" if side in ANSWERS[:3] else side
        answer = spoken in ("assistant", "completion")
        where = role if side in (*ANSWERS, *ASIDE) and self.reading.paired else self.prompt
        if not text.strip():
            return
        if role == "system":
            self.said.append(Said(path, where, self.turn, ANYWHERE, text, None, role))
            return
        for piece in self.marks.split(text) if self.marks is not None and kind == TEXT else (text,):
            if answer and kind == TEXT and self.reading.tags and self.reading._mark.search(piece):
                parts, last = list[tuple[str, str]](), 0
                for number, mark in enumerate(self.reading._mark.finditer(piece)):
                    parts.append((REASONING if number % 2 else TEXT, piece[last : mark.start()]))
                    last = mark.end()
                already = {each.text.strip() for each in self.said if each.turn == self.turn and each.kind == REASONING}
                for its_kind, part in (*parts, (TEXT, piece[last:])):
                    if part.strip() and (its_kind == TEXT or part.strip() not in already):  # one that a field says as well stands once
                        self.said += self._between_tags(Said(path, where, self.turn, its_kind, part, weight, spoken))
            elif piece.strip():
                self.said += self._between_tags(Said(path, where, self.turn, kind, piece, weight, spoken))

    def _between_tags(self, said: Said) -> Iterator[Said]:
        """A text, of which calls at the end of an answer are calls, and results of a tool stand without their tags."""
        tag = {"assistant": "tool_call", "tool": "tool_response"}.get(said.role)
        words, blocks = said.text, list[str]()
        while self.reading.calls and said.kind == TEXT and tag and words.rstrip().endswith(f"</{tag}>"):
            before, opened, block = words.rstrip().removesuffix(f"</{tag}>").rpartition(f"<{tag}>")
            if not opened or f"</{tag}>" in block:
                break
            words, blocks = before, [block, *blocks]
        if not blocks or (words.strip() and (tag == "tool_response" or "\n" not in words[len(words.rstrip()) :])):
            yield said
            return
        if words.strip():
            yield said._replace(text=words)
        for block in blocks:
            if tag == "tool_response":
                yield said._replace(text=block)
                continue
            call = json.loads(block)
            arguments = call.get("arguments", call.get("parameters", {}))
            for leaf in (call["name"], *_leaves(json.loads(arguments) if isinstance(arguments, str) else arguments, self.reading.sorts)):
                yield said._replace(kind=CALL, text=leaf)

    def _marks(self) -> re.Pattern[str] | None:
        """What stands for files in a text; `None` for a row without files."""
        keys = (*self.reading.file_keys, "images", "image", "videos", "video", "audios", "audio")
        if not any(self.row.get(key) is not None for key in keys):
            return None
        return re.compile("|".join(map(re.escape, (self.options.get("image_token", "<image>"), "<audio>", "<video>"))))

    # Columns by their names.

    def _other(self, name: str, value: Any) -> None:
        rule = "tools" if name in self.reading.tool_keys else "files" if name in self.reading.file_keys else NAMES.get(name)
        rule = rule or NAMES.get(name.lower())
        if rule == "tools" or (rule == "documents"):
            RULES[rule](self, value, "", name)
        elif name == "margin" and self.reading.gives == "Pair":
            self.said.append(Said(name, name, self.turn, EXACT, json.dumps(value)))
        elif rule is None:
            self.anywhere(value, name)

    def anywhere(self, value: Any, path: str, kind: str = ANYWHERE) -> None:
        """Add all strings of a value, which may stand anywhere."""
        if isinstance(value, str):
            if value.strip():
                self.said.append(Said(path, "", self.turn, kind, value))
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                if key not in NAMES and (inside := f"{path}.{key}") not in self.reading.ignore | self.reading.chosen_by:
                    self.anywhere(inner, inside, kind)
        elif isinstance(value, list | tuple):
            for inner in value:
                self.anywhere(inner, path, kind)

    # Messages.

    def chat(self, messages: Sequence[Any], role: str, path: str, *, earlier: bool = False) -> None:
        """Add a list of messages. Results of tools come in the order of their calls, if both have ids.

        Args:
            role: of the column: a side, ``chat``, or ``prompt`` or ``user`` for one whose answers are not trained.
            earlier: leave out the last message.
        """
        listed = [*_in_call_order(messages[:-1] if earlier else messages, self._role)]
        for message, following in zip(listed, [*listed[1:], None], strict=True):
            if not isinstance(message, Mapping):
                raise Unlike(f"{path} has a message that is no object")
            self.message(message, role, path, called=following is not None and self._role(following) == "tool")
            self.turn += 1

    def _role(self, message: Row) -> str:
        tag = _as_text(next((message[key] for key in self.reading.role_keys if isinstance(message.get(key), str | bytes)), ""))
        reading = self.reading
        return (
            "assistant"
            if tag in reading.assistants
            else "system"
            if tag in reading.systems
            else "tool"
            if tag in reading.results
            else "user"
        )

    def message(self, message: Row, role: str, path: str, *, called: bool = False) -> None:
        """Add one message: reasoning, content, calls. `called`: the result of a tool follows."""
        own = self._role(message)
        weight = _weight(message)
        if weight is None and own == "assistant" and role in ("prompt", "user"):
            weight = 0.0
        if role.partition("[")[0] in ANSWERS[:3]:
            whose = role if own != "system" else "system"
        elif role == "document":
            whose = "document"
        else:
            whose = "completion" if role == "completion" and own == "assistant" and self.reading.paired else own
        for key in _REASONING_FIELDS:
            if isinstance(message.get(key), str) and message[key].strip():
                self.say(message[key], whose, f"{path}.{key}", kind=REASONING, weight=weight)
                break
        else:
            for detail in message.get("reasoning_details") or ():
                for key in ("text", "summary"):
                    if isinstance(detail.get(key), str):
                        self.say(detail[key], whose, f"{path}.reasoning_details", kind=REASONING, weight=weight)
        key = next((key for key in self.reading.content_keys if message.get(key) is not None), "content")
        content, tag = _as_text(message.get(key)), next((message[key] for key in self.reading.role_keys if key in message), "")
        stretches = next((message[name] for name in _STRETCHES if message.get(name)), None)
        if isinstance(content, str) and (_as_text(tag) in self.reading.callers or (called and own == "assistant" and _is_call(content))):
            self.calls(content, whose, f"{path}.{key}", weight)
        elif isinstance(content, str) and stretches:
            for piece, own_weight in _pieces(content, stretches):
                self.say(piece, whose, f"{path}.{key}", weight=own_weight if weight is None else own_weight * weight)
        elif isinstance(content, str):
            self.say(content, whose, f"{path}.{key}", weight=weight)
        else:
            for part in content or ():
                self.part(part, whose, f"{path}.{key}", weight)
        if not content and isinstance(message.get("refusal"), str):
            self.say(message["refusal"], whose, f"{path}.refusal", weight=weight)
        for name in _CALL_FIELDS:
            if message.get(name):
                self.calls(message[name], whose, f"{path}.{name}", weight)
        for name in ("tools", "functions"):
            if message.get(name):
                RULES["tools"](self, message[name], "", f"{path}.{name}")
        known = {key, *self.reading.content_keys, *_REASONING_FIELDS, *_CALL_FIELDS, *_FIELDS_OF_MESSAGES, *self.reading.role_keys}
        for name in message:
            known_name = name in known or name in ("refusal", "reasoning_details", "tools", "functions", *NAMES, *_WEIGHTS, *_STRETCHES)
            if not known_name and f"{path}.{name}" not in self.reading.ignore:
                self.anywhere(message[name], f"{path}.{name}")

    def part(self, part: Any, role: str, path: str, weight: float | None) -> None:
        """Add a part of a content."""
        if isinstance(part, str):
            self.say(part, role, path, weight=weight)
            return
        kind, weight = part.get("type"), weight if (own := _weight(part)) is None else own
        if kind in ("reasoning", "thinking"):
            text = next((part[key] for key in (kind, "text", "value") if part.get(key) is not None), "")
            self.say(text, role, path, kind=REASONING, weight=weight)
        elif kind in ("tool_call", "tool_use"):
            held = next((part[key] for key in ("value", "tool_call") if part.get(key) is not None), part)
            self.calls(held, role, path, weight)
        elif kind in ("image", "audio", "video", "image_url", "audio_url", "video_url"):
            return
        else:
            text = next((part[key] for key in ("text", "value", "content") if part.get(key) is not None), "")
            if isinstance(text, str):
                self.say(text, role, path, weight=weight)
            else:
                for inner in text:
                    self.part(inner, role, path, weight)

    def calls(self, value: Any, role: str, path: str, weight: float | None) -> None:
        """Add tool calls: names, keys and values of arguments."""
        parsed = json.loads(value) if isinstance(value, str) else value
        for call in [parsed] if isinstance(parsed, Mapping) else parsed:
            function = call["function"] if isinstance(call.get("function"), Mapping) else call
            arguments: Any = next((function[key] for key in ("arguments", "parameters", "input") if function.get(key)), {})
            for leaf in (
                function["name"],
                *_leaves(json.loads(arguments) if isinstance(arguments, str) else arguments, self.reading.sorts),
            ):
                self.say(leaf, role, path, kind=CALL, weight=weight)


def _weight(fields: Row) -> float | None:
    """The loss weight that a row, a message or a part gives itself; `None` where it gives none."""
    return next((float(fields[key]) for key in _WEIGHTS if isinstance(fields.get(key), bool | int | float)), None)


def _pieces(text: str, stretches: Sequence[Row]) -> Iterator[tuple[str, float]]:
    """Yield the stretches of a text, from ``begin_offset`` to ``end_offset``, both within, and what lies between them, which is not trained."""
    at = 0
    for stretch in sorted(stretches, key=lambda each: int(each["begin_offset"])):
        yield text[at : stretch["begin_offset"]], 0.0
        yield text[stretch["begin_offset"] : (at := stretch["end_offset"] + 1)], float(stretch["train"])
    yield text[at:], 0.0


def _is_call(text: str) -> bool:
    """Whether a text is the JSON of calls, and nothing else."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return False
    calls = [parsed] if isinstance(parsed, Mapping) else parsed
    return isinstance(calls, list) and bool(calls) and all(isinstance(call, Mapping) and {"name", "function"} & {*call} for call in calls)


def _as_text(value: Any) -> Any:
    """Text of a binary column as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _by_message(value: Any) -> Any:
    """Messages that are stored as columns of lists, one by one."""
    if not isinstance(value, Mapping) or not value or not all(isinstance(column, list) for column in value.values()):
        return value
    rows = zip(*value.values(), strict=True)
    return [{key: each for key, each in zip(value, row, strict=True) if each is not None} for row in rows]


def _leaves(value: Any, sorts: bool = False) -> Iterator[str]:
    """Yield keys and values of JSON as they are written, in their order, or sorted by key as Jinja's ``dictsort`` sorts them."""
    if isinstance(value, Mapping):
        for key, inner in sorted(value.items(), key=lambda item: str(item[0]).lower()) if sorts else value.items():
            yield str(key)
            yield from _leaves(inner, sorts)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner, sorts)
    elif value is not None:
        yield value if isinstance(value, str) else json.dumps(value)


def _in_call_order(messages: Sequence[Any], role: Callable[[Any], str]) -> Iterable[Any]:
    """Yield messages, the results behind an answer in the order of its calls, where all of both have ids."""
    if not any(isinstance(message, Mapping) and message.get("tool_call_id") for message in messages):
        return messages
    ordered, run_before = list[Any](), list[Any]()
    for of_tool, run in groupby(messages, key=lambda message: role(message) == "tool"):
        listed = list(run)
        if of_tool and ordered:
            latest = [call.get("id") for message in run_before for call in _listed_calls(message)]
            answered = [message.get("tool_call_id") for message in listed]
            if None not in latest and None not in answered and not {*latest}.isdisjoint(answered):
                listed.sort(key=lambda message: latest.index(message["tool_call_id"]) if message["tool_call_id"] in latest else -1)
        run_before = [*reversed([*takewhile(lambda message: role(message) == "assistant", reversed(listed))])]
        ordered += listed
    return ordered


def _listed_calls(message: Row) -> list[Row]:
    held = [message[key] for key in _CALL_FIELDS if message.get(key)]
    parts = message["content"] if isinstance(message.get("content"), list) else []
    parsed = [json.loads(calls) if isinstance(calls, str) else calls for calls in held]
    calls = [call for each in parsed for call in ([each] if isinstance(each, Mapping) else each)]
    return [*calls, *(part for part in parts if part.get("type") in ("tool_use", "tool_call"))]


# Rules: what becomes of the value of a column. Each gets the row on its way, the value, the role and the path.

RULES: dict[str, Callable[[_Walk, Any, str, str], None]] = {}
_Rule = Callable[[_Walk, Any, str, str], None]


def rule(function: _Rule) -> _Rule:
    """Register a rule under its name."""
    RULES[function.__name__.strip("_")] = function
    return function


@rule
def text(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Strings stand verbatim, several end to end; messages are read as messages; of numbers the decimals stand."""
    value = _as_text(_by_message(value))
    if isinstance(value, Mapping):
        value = [value] if _is_message(walk, value) else [*value.values()]
    if isinstance(value, list | tuple):
        if value and all(_is_message(walk, each) for each in value):
            walk.chat(value, role, path)
            return
        for number, each in enumerate(value):
            if isinstance(each, list | tuple | Mapping) or role == "responses":
                text(walk, each, f"{role}[{number}]" if role == "responses" else role, path)
                walk.turn += 1
            elif isinstance(each, str):
                walk.say(each, role, path)
        return
    if isinstance(value, bool):
        return
    walk.say(value if isinstance(value, str) else str(value), role, path)
    walk.turn += role not in ("words",)


@rule
def unless_sampled(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Texts, unless the row has the ids that a model was given or wrote, which `sampled_ids` compares."""
    if walk.options.get("token_ids_key" if role == "responses" else "prompt_ids_key") is None:
        text(walk, value, role, path)


def _is_message(walk: _Walk, value: Any) -> bool:
    return isinstance(value, Mapping) and any(key in value for key in (*walk.reading.role_keys, *walk.reading.content_keys))


@rule
def value(walk: _Walk, value: Any, role: str, path: str) -> None:
    """The value is that of a field of the line."""
    walk.said.append(Said(path, role, walk.turn, EXACT, json.dumps(value)))


@rule
def gold(walk: _Walk, value: Any, role: str, path: str) -> None:
    """The value is the gold: the same text, or the same number."""
    walk.said.append(Said(path, role, walk.turn, EXACT, json.dumps(value)))


@rule
def final(walk: _Walk, value: Any, role: str, path: str) -> None:
    """All that stands behind ``####`` is the gold; what stands before it is no part of a prompt."""
    walk.said.append(Said(path, role, walk.turn, EXACT, json.dumps(re.sub(r"<<[^>]*>>", "", value).partition("####")[2].strip())))


def _worked(value: str) -> list[str]:
    return re.sub(r"<<[^>]*>>", "", value).split("####")


@rule
def worked(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Calculator notes ``<<…>>`` and marks ``####`` are left out; all other text stands."""
    for piece in _worked(value):
        walk.say(piece, role, path)


@rule
def told(walk: _Walk, value: Any, role: str, path: str) -> None:
    """What a verifier is told: all strings and numbers stand in its arguments."""
    for leaf in _leaves(json.loads(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"') else value):
        walk.said.append(Said(path, role, walk.turn, CALL, leaf))


@rule
def exchanges(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Earlier questions and answers in pairs."""
    for asked, answered in value:
        for whose, each in (("user", asked), ("assistant", answered)):
            walk.say(each, whose, path)
            walk.turn += 1


@rule
def better_and_worse(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Two answers in an array, the better one first, where no other columns have them."""
    if walk.row.get(_key(walk, "chosen")) is None and isinstance(value, list):
        for whose, each in zip(ANSWERS, value, strict=False):
            walk.say(each, whose, path)
            walk.turn += 1


@rule
def with_better(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Messages that end with the better answer, where another column has the worse one."""
    if not walk.row.get("chosen") and (walk.row.get("rejected_messages") or walk.row.get("rejected_response")):
        text(walk, value, role, path)


@rule
def other_answer(walk: _Walk, value: Any, role: str, path: str) -> None:
    """The worse answer to the prompt of ``messages``: a text, an array of one text, or messages."""
    messages = _by_message(walk.row["messages"])
    texts = [value] if isinstance(value, str) else value if value and isinstance(value[0], str) else None
    last = max((at + 1 for at, message in enumerate(messages) if walk._role(message) != "assistant"), default=0)
    text(walk, messages[:-1] if texts else messages[:last], role, "messages")
    text(walk, texts or value, role, path)


@rule
def before_code(walk: _Walk, value: Any, role: str, path: str) -> None:
    """The text before a block of code, which stands in another column."""
    walk.say(value.partition("```")[0], role, path)
    walk.turn += 1


@rule
def second(walk: _Walk, value: Any, role: str, path: str) -> None:
    """The second message is the answer, the first repeats the prompt; later ones are refused or left out."""
    walk.say(value[1]["content"], role, path)


@rule
def answered(walk: _Walk, value: Any, role: str, path: str) -> None:
    """The last message is the gold, those before it are the prompt."""
    last = value[-1]
    walk.chat(value, role, path, earlier=True)
    key = next(key for key in walk.reading.content_keys if last.get(key) is not None)
    walk.said.append(Said(f"{path}.{key}", "gold", walk.turn, EXACT, json.dumps(last[key])))


_TURN_MARKS = ("\n\nHuman:", "\n\nAssistant:")


def _split(walk: _Walk, value: str, defaults: Sequence[str] = _TURN_MARKS) -> list[tuple[str, str]]:
    """Split a text at the marks of its turns into role and text of each."""
    human, assistant = (walk.options.get(key) for key in ("human_mark", "assistant_mark"))
    marks = [walk.options.get("user_mark") or human or defaults[0], assistant or defaults[1]]
    parts = re.split("(" + "|".join(map(re.escape, marks)) + ")", value)
    return [("assistant" if mark == marks[1] else "user", each) for mark, each in zip(parts[1::2], parts[2::2], strict=True)]


@rule
def marked(walk: _Walk, value: str, role: str, path: str) -> None:
    """Turns in one text, each behind a mark. Of a side the last one is the answer."""
    turns = _split(walk, value, _TURN_MARKS if role in ANSWERS else ("Human:", "Assistant:"))
    if role in ANSWERS and walk.options.get("prompt_check") == "chosen" and role == "rejected":
        turns = turns[-1:]
    for whose, each in turns:
        walk.say(each, role if role in ANSWERS else whose, path)
        walk.turn += 1


@rule
def marked_prompt(walk: _Walk, value: Any, role: str, path: str) -> None:
    """A prompt, with marks before its turns where the options say so."""
    if walk.options.get("marked_prompt"):
        for whose, each in _split(walk, value):
            walk.say(each, whose, path)
            walk.turn += 1
    else:
        text(walk, value, role, path)


@rule
def side(walk: _Walk, value: Any, role: str, path: str) -> None:
    """An answer; without a prompt the whole dialogue, whose beginning is the prompt. Which of two answers is better, a verdict may say."""
    if role in ("first", "second"):
        verdict = walk.row.get(str(walk.options.get("verdict_key", "overall_preference")))
        first = verdict < 0 if isinstance(verdict, int | float) else verdict in _FIRST
        walk.answers = {"first": "chosen", "second": "rejected"} if first else {"first": "rejected", "second": "chosen"}
        role = walk.answers[role]
    prompt = walk.options.get("prompt_key", "context" if walk.reading.schema == "compared" else "prompt")
    if isinstance(value, str) and walk.row.get(str(prompt)) is None:
        marked(walk, value, role, path)
    else:
        text(walk, value, role, path)


_FIRST = ("model_a", "a", "A", "response_a", "response_1", "1", "first")


@rule
def cut(walk: _Walk, value: Any, role: str, path: str) -> None:
    """An answer; without a prompt a text that is cut behind its last mark of an assistant."""
    if not isinstance(value, str) or walk.options.get("prompt_key") is not None:
        text(walk, value, role, path)
        return
    marks = list(
        re.finditer(re.escape(walk.options.get("assistant_role", "assistant:")), str(walk.row[_key(walk, "chosen")]), re.IGNORECASE)
    )
    for piece in (value[: marks[-1].end()], value[marks[-1].end() :]):
        walk.say(piece, role, path)
        walk.turn += 1


def _key(walk: _Walk, name: str) -> str:
    return str(walk.options.get(f"{name}_key", name))


@rule
def answer(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Messages that end with the answer; where the prompt's column counts alone, the answer alone."""
    walk.chat(value[-1:] if walk.options.get("prompt_check") == "column" else value, role, path)


@rule
def rated(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Completions with scores: where no answer is named, the one that scores most is chosen, the one that scores least is rejected."""
    if walk.row.get(_key(walk, "chosen")) is not None or not value:
        return
    for whose, each in (("chosen", max(value, key=_score)), ("rejected", min(value, key=_score))):
        walk.say(each["response"], whose, path)
        walk.turn += 1


def _score(completion: Row) -> float:
    return float(completion["overall_score"])


def _ranked(walk: _Walk) -> list[Fraction]:
    """The rewards of responses, exactly; of ranks the negative."""
    ranks = walk.options.get("ranks_key")
    listed = walk._found(str(ranks or walk.options.get("rewards_key", "rewards")))
    rewards = [Fraction(str(reward)) for reward in listed]
    return [-reward for reward in rewards] if ranks else rewards


def _responses(walk: _Walk, value: Sequence[Any], order: Sequence[int], roles: Sequence[str], path: str) -> None:
    for number, role in zip(order, roles, strict=True):
        text(walk, value[number], role, path)
        walk.turn += 1


@rule
def best(walk: _Walk, value: Any, role: str, path: str) -> None:
    """The response with the largest reward, of equal ones the first, is the answer."""
    rewards = _ranked(walk)
    _responses(walk, value, [rewards.index(max(rewards))], ["assistant"], path)


@rule
def best_and_worst(walk: _Walk, value: Any, role: str, path: str) -> None:
    """The response with the largest reward is chosen, the one with the smallest rejected; of equal ones the first."""
    rewards = _ranked(walk)
    _responses(walk, value, [rewards.index(choose(rewards)) for choose in (max, min)], ANSWERS[:2], path)


@rule
def ordered(walk: _Walk, value: Any, role: str, path: str) -> None:
    """All responses, the best first; equal ones in the order of the row."""
    rewards = _ranked(walk)
    order = sorted(range(len(rewards)), key=lambda number: -rewards[number])
    _responses(walk, value, order, [f"responses[{number}]" for number in range(len(order))], path)


@rule
def labelled(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Each response with its label, apart from those that are neither good nor bad."""
    rewards, least = _ranked(walk), walk.options.get("desirable_from")
    border = sum(rewards) / len(rewards) if least is None else Fraction(str(least))
    kept = [number for number, reward in enumerate(rewards) if least is not None or reward != border]
    _responses(walk, value, kept, [f"responses[{number}]" for number in range(len(kept))], path)
    for number, response in enumerate(kept):
        walk.said.append(Said(path, f"label[{number}]", walk.turn, EXACT, json.dumps(rewards[response] >= border)))


@rule
def joined(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Steps of one response."""
    for step in value:
        walk.say(step, "responses[0]", path)


@rule
def shepherd(walk: _Walk, value: str, role: str, path: str) -> None:
    """A question, and steps behind ``Step 1:``, each with a tag at its end."""
    question, first, steps = value.partition("Step 1:")
    walk.say(question, role, path)
    walk.turn += 1
    joined(walk, (first + steps).split(str(walk.options.get("tag", "ки"))), role, path)


@rule
def rated_steps(walk: _Walk, value: Row, role: str, path: str) -> None:
    """Of each step the completion that was chosen; the first one of a step in which none was, which is the last."""
    steps = list[str]()
    for step in value["steps"]:
        chosen = step.get("chosen_completion")
        steps.append(step["completions"][chosen or 0]["text"])
        if chosen is None:
            break
    joined(walk, steps, role, f"{path}.steps")


@rule
def moss(walk: _Walk, value: Row, role: str, path: str) -> None:
    """Exchanges of MOSS without its marks; what it thinks and what its tools say only with ``plugins``."""
    fields = {"Human": ("<|Human|>: ", "<eoh>"), "Inner Thoughts": ("<|Inner Thoughts|>:", "<eot>"), "Commands": ("<|Commands|>:", "<eoc>")}
    fields |= {"Tool Responses": ("<|Results|>:", "<eor>"), "MOSS": ("<|MOSS|>:", "<eom>")}
    for exchange in value.values():
        said = {name: exchange[name].replace(a, "").replace(b, "").strip() for name, (a, b) in fields.items() if exchange.get(name)}
        called = re.findall(r'(Search|Calculate|Solve|Text2Image)\("((?:[^"\\]|\\.)*)"\)', said.get("Commands", ""), re.DOTALL)
        if not said:
            continue
        for name, (whose, kind) in _OF_MOSS.items():
            if name not in ("Human", "MOSS") and not walk.options.get("plugins"):
                continue
            if name == "Commands":
                for call in called:
                    for leaf in call:
                        walk.say(leaf, whose, f"{path}.{name}", kind=kind)
            elif (name != "Tool Responses" or called) and (name in ("Human", "MOSS", "Tool Responses") or said.get(name) != "None"):
                walk.say(said.get(name, ""), whose, f"{path}.{name}", kind=kind)
            walk.turn += name in ("Human", "Tool Responses", "MOSS") or (name == "Commands" and bool(called))


_OF_MOSS = {
    "Human": ("user", TEXT),
    "Inner Thoughts": ("assistant", REASONING),
    "Commands": ("assistant", CALL),
    "Tool Responses": ("tool", TEXT),
    "MOSS": ("assistant", TEXT),
}


@rule
def beside_files(walk: _Walk, value: Sequence[Row], role: str, path: str) -> None:
    """Messages; with ``phase: 1`` the text beside an image is left out."""
    mark = walk.options.get("image_token", "<image>")
    for message in value:
        content = next((message[key] for key in walk.reading.content_keys if message.get(key) is not None), "")
        if walk.options.get("phase") != 1 or mark not in content:
            walk.message(message, role, path)
        walk.turn += 1


@rule
def headers(walk: _Walk, value: str, role: str, path: str) -> None:
    """A chat that Llama 3's template wrote: its control tokens and roles are left out."""
    for whose, content in re.findall(r"<\|start_header_id\|>(.*?)<\|end_header_id\|>\n\n(.*?)<\|(?:eot|eom)_id\|>", value, re.DOTALL):
        walk.say(content, walk._role({"role": whose.strip()}), path)
        walk.turn += 1


@rule
def request(walk: _Walk, value: Row, role: str, path: str) -> None:
    """A request to an interface: its system prompt, messages or items, and tools; of these the schema of the input stands as ``parameters``."""
    key = walk.options.get("request_key")
    for name in str(key or "").split("."):
        value = value[name] if name else value
    walk.seen.update(["messages", "input", "tools", "system", "instructions"] if key is None else [str(key).partition(".")[0]])
    for name in ("system", "instructions"):
        system = value.get(name) or []
        for part in [system] if isinstance(system, str) else [block["text"] for block in system]:
            walk.say(part, "system", name)
    if isinstance(value.get("input"), str):
        walk.say(value["input"], "user", "input")
        walk.turn += 1
    for name in ("messages", "input"):
        if isinstance(value.get(name), list):
            _items(walk, value[name], name)
    tools(walk, value.get("tools") or [], role, "tools")


def _items(walk: _Walk, items: Sequence[Row], path: str) -> None:
    for item in items:
        kind = item.get("type")
        if kind == "reasoning":
            for part in [*(item.get("summary") or []), *(item.get("content") or [])]:
                walk.say(part["text"], "assistant", path, kind=REASONING)
        elif kind == "function_call":
            walk.calls([item], "assistant", path, None)
        elif kind == "function_call_output":
            walk.turn += 1
            text(walk, item["output"], "user", path)
        else:
            walk.message(item, "chat", path)
        walk.turn += kind in (None, "message") and walk._role(item) != "assistant"


@rule
def blocks(walk: _Walk, value: Row, role: str, path: str) -> None:
    """The response of Anthropic's interface: its content is the last answer."""
    walk.message({"role": "assistant", "content": value["content"]}, "chat", path)


@rule
def output(walk: _Walk, value: Row, role: str, path: str) -> None:
    """The response of OpenAI's interface: its output holds the last items."""
    _items(walk, value["output"], path)


@rule
def regions(walk: _Walk, value: Sequence[Row], role: str, path: str) -> None:
    """Cerebras' arrays: regions by name, with weights by region, of which those that are dropped are left out."""
    sides = {"chosen": "chosen", "rejected": "rejected"} if any(turn.get("type") == "chosen" for turn in value) else {}
    for turn in value:
        kind, content = turn.get("type", "document"), turn["content"]
        weights, drops = turn.get("semantic_loss_weight"), turn.get("semantic_drop_mask")
        for number, region in enumerate(content):
            [name] = [key for key in region if key != "include_tags"]
            default = (walk.options.get("semantic_drop_mask") or {}).get(name, False)
            weight = (walk.options.get("semantic_loss_weight") or {}).get(name) if weights is None else weights[number]
            if region[name] and name != "image" and not (default if drops is None else drops[number]):
                whose = sides.get(kind) or (
                    "assistant" if kind in ("assistant", "completion") else "system" if kind == "system" else "user"
                )
                spoken = "assistant" if kind in sides else kind if kind in ("prompt", "completion", "document") else whose
                where = sides.get(kind, walk.prompt)
                walk.said.append(
                    Said(
                        path,
                        where,
                        walk.turn,
                        ANYWHERE if whose == "system" else TEXT,
                        region[name],
                        None if weight is None else float(weight),
                        spoken,
                    )
                )
        walk.turn += 1


@rule
def sections(walk: _Walk, value: Row, role: str, path: str) -> None:
    """AstrAI's sections: fields one after another, each trained or not."""
    sources = walk.options.get("sources") or {
        "": {"sections": walk.options.get("sections") or [{"field": "messages", "action": "$role", "template": True}]}
    }
    sides = {"": "chat", "chosen": "chosen", "rejected": "rejected", "prompts": "user", "responses": "responses"}
    for name, source in sources.items():
        for section in source["sections"] if name in sides else ():
            held = walk.row.get(section["field"])
            before = len(walk.said)
            if held is not None:
                text(
                    walk,
                    held,
                    sides[name] if section.get("template") or name == "responses" else _plain_side(name, section),
                    section["field"],
                )
            weight = {"train": 1.0, "mask": 0.0}.get(section["action"]) if name == "" else None
            walk.said[before:] = [each._replace(weight=weight) if each.weight is None else each for each in walk.said[before:]]


def _plain_side(name: str, section: Row) -> str:
    return name if name in ("chosen", "rejected") else "completion" if section["action"] == "train" else "user"


@rule
def tools(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Tools on offer: names, descriptions and the names of parameters stand in the prompt."""
    parsed = (json.loads(value) if value.strip() else []) if isinstance(value, str) else value
    for tool in [parsed] if isinstance(parsed, Mapping) else parsed or ():
        function = tool["function"] if isinstance(tool.get("function"), Mapping) else tool
        name = function.get("name")
        walk.said += [Said(f"{path}.name", "", walk.turn, TOOL, name)] if name else []
        if isinstance(function.get("description"), str):
            walk.said += [Said(f"{path}.description", "", walk.turn, ANYWHERE, line) for line in function["description"].splitlines()]
        parameters = function.get("parameters") or function.get("input_schema") or {}
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        walk.said += [Said(f"{path}.parameters", "", walk.turn, ANYWHERE, key) for key in properties or {}]


@rule
def documents(walk: _Walk, value: Any, role: str, path: str) -> None:
    """Documents on offer: their titles and texts stand in the prompt."""
    for document in value if isinstance(value, list | tuple) else ():
        for key in ("title", "text", "contents"):
            if isinstance(document, Mapping) and isinstance(document.get(key), str):
                walk.anywhere(document[key], f"{path}.{key}")


# What is looked for, in what a store holds.


class Held(NamedTuple):
    """What a side of a record holds: its text, by each loss weight (float32) the text of its tokens, or `None` where no weights are known, and where the answer
    begins behind the prompt."""

    text: bytes
    weighed: Mapping[float, bytes] | None = None
    begins: int = 0


class Missing(NamedTuple):
    """A text of a row that its record does not hold, and why."""

    said: Said
    why: str

    def __str__(self) -> str:
        return f"{self.said.path!r} says {self.said.text.strip()[:60]!r}, which {self.why}"


def spellings(said: Said, spell: Callable[[str], bytes]) -> tuple[bytes, ...]:
    """Return how a text may be written: without white space around it; what a template writes as JSON also with escapes."""
    plain = said.text.strip()
    if said.kind not in (CALL, TOOL, ANYWHERE) and said.role != "tool":
        return (spell(plain),)
    forms = [plain, json.dumps(plain, ensure_ascii=False)[1:-1], json.dumps(plain)[1:-1]]
    forms += [plain.capitalize()] if plain in ("true", "false") else []
    return tuple(dict.fromkeys(map(spell, forms)))


def _end(data: bytes, forms: Sequence[bytes], start: int) -> int:
    """Where the first of several spellings ends at or behind `start`; -1 where there is none."""
    if len(forms) == 1:
        at = data.find(forms[0], start)
        return -1 if at < 0 else at + len(forms[0])
    return min((at + len(form) for form in forms if (at := data.find(form, start)) >= 0), default=-1)


def missing(
    said: Iterable[Said],
    held: Mapping[str, Held],
    lost: list[Said],
    spell: Callable[[str], bytes] = str.encode,
    policy: Policy = NO_POLICY,
) -> Missing | None:
    """Return the first text that a record does not hold where its row has it; `None` where all stand.

    Args:
        held: of each side.
        lost: gets the reasoning that is not there.
        spell: how a text stands in decoded tokens.
        policy: what is trained where the row does not say it.
    """
    listed = list(said)
    for side, texts in _by_side(listed).items():
        if side not in held:
            return Missing(texts[0], f"is of {side!r}, which the record does not have")
        if (fault := _on_side(texts, held[side], lost, spell, policy)) is not None:
            return fault
    whole = held.get("", None) or Held(b"\n".join(each.text for each in held.values()))
    names = 0
    for each in listed:
        if each.kind in (ANYWHERE, TOOL):
            forms = spellings(each, spell)
            end = _end(whole.text, forms, names if each.kind == TOOL else 0)
            if end < 0:
                return Missing(each, "stands nowhere in the record")
            if each.kind == TOOL and max(map(whole.text.count, forms)) <= sum(
                said.kind == CALL and said.text == each.text for said in listed
            ):
                return Missing(each, "stands in calls, and is not on offer")
            names = end if each.kind == TOOL else names
    return None


def _by_side(said: Iterable[Said]) -> dict[str, list[Said]]:
    sides: dict[str, list[Said]] = {}
    for each in said:
        if each.kind not in (ANYWHERE, TOOL):
            sides.setdefault(each.side, []).append(each)
    return sides


def _on_side(texts: Sequence[Said], held: Held, lost: list[Said], spell: Callable[[str], bytes], policy: Policy) -> Missing | None:
    """The first text of a side that does not stand in its order, or in tokens of another weight.

    Reasoning that a template drops may be found in a later turn, which says the same, and hide what stands between: it is left out then.
    """
    left, dropped, first = [*texts], list[Said](), None
    while True:
        missed = list[Said]()
        fault = _in_order(left, held, missed, spell, policy)
        if fault is None:
            lost += [*dropped, *missed]
            return None
        first = first or fault
        before = [each for each in left[: left.index(fault.said)] if each.kind == REASONING and each not in missed]
        repeated = [each for each in before if any(later.turn > each.turn and each.text.strip() in later.text for later in texts)]
        if not repeated:
            return first
        left.remove(repeated[-1])
        dropped.append(repeated[-1])


def _in_order(texts: Sequence[Said], held: Held, lost: list[Said], spell: Callable[[str], bytes], policy: Policy) -> Missing | None:
    """The same, where every reasoning that is found stands in its turn."""
    whole, last = -1.0, texts[-1].turn
    base = {whole: 0} | dict.fromkeys(held.weighed or (), 0)
    for turn, run in groupby(texts, key=lambda each: each.turn):
        base[whole] = max(base[whole], held.begins) if turn == last else base[whole]
        ends: dict[tuple[float, str], int] = {}
        for each in run:
            if each.kind == EXACT:
                if not _same(each.text, held.text):
                    return Missing(each, f"is {held.text.decode(errors='replace')[:60]!r} in the store")
                continue
            forms = spellings(each, spell)
            end = _end(held.text, forms, ends.get((whole, each.kind), base[whole]))
            if end < 0 and each.kind == REASONING:
                lost.append(each)
                continue
            if end < 0:
                where = "stands before the text in front of it" if _end(held.text, forms, 0) >= 0 else "stands nowhere in it"
                return Missing(each, f"{where}, on the side {each.side or 'of the whole record'}")
            ends[whole, each.kind] = end
            weight = policy.weight(each, by_role=turn == last or not each.side)  # before an answer stands its prompt
            if weight is not None and held.weighed is not None and each.kind != REASONING:
                weight = single(weight)
                end = _end(held.weighed.get(weight, b""), _inner(each, forms), ends.get((weight, each.kind), base.get(weight, 0)))
                if end < 0:
                    must = "untrained" if not weight else "trained" if weight == 1 else f"trained with weight {weight:g}"
                    return Missing(each, f"must be {must}, and is not")
                ends[weight, each.kind] = end
        for part in base:
            base[part] = max((end for (of, _), end in ends.items() if of == part), default=base[part])
    return None


def single(weight: float) -> float:
    """A weight as a store has it: rounded to float32."""
    [stored] = struct.unpack("f", struct.pack("f", weight))
    return float(stored)


_CUT = 8


def _inner(said: Said, forms: Sequence[bytes]) -> Sequence[bytes]:
    """The spellings without what a token may share with the next text where no template stands between them."""
    if said.role not in ("prompt", "completion", "words", "document"):
        return forms
    return [form[_CUT:-_CUT] if len(form) > 2 * _CUT else b"" for form in forms]


def _same(said: str, held: bytes) -> bool:
    """Whether a field of a line is a value: equal as JSON, as text, or as a number."""
    row, stored = json.loads(said), json.loads(held) if held else None
    if row == stored and isinstance(row, bool) == isinstance(stored, bool):
        return True
    if isinstance(row, bool) or isinstance(stored, bool):
        return False
    numbers = [_number(each) for each in (row, stored)]
    return None not in numbers and numbers[0] == numbers[1]


def _number(value: Any) -> Fraction | None:
    text = value.strip().replace("$", "").replace("−", "-").removesuffix(".") if isinstance(value, str) else str(value)
    if isinstance(value, str) and not re.fullmatch(r"[-+]?(?:\d+|\d{1,3}(?:,\d{3})+)?(?:\.\d+)?", text):
        return None
    try:
        return Fraction(text.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None
