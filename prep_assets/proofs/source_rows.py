"""Rows of a source, read by the columns that the definition of their format lists: what each says, whose it is, and with which weight."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from prep_assets.proofs.formats import definition_of, neutral_names, resolved, roles_of, rule_named, without
from prep_assets.proofs.plain_reading import ReadRows, Turns
from prep_assets.proofs.second_reading import blocks_of, call_again
from prep_assets.proofs.source_fields import (
    CALLERS,
    CALLS,
    FIELDS_OF_MESSAGES,
    KNOWN,
    REASONINGS,
    ROLES,
    STRETCHES,
    WEIGHTS,
    Unlike,
    as_text,
    in_call_order,
    is_call,
    json_leaves,
    pieces_of,
    weight_of,
    worked_pieces,
)
from prep_assets.proofs.source_texts import ANSWERS, ANYWHERE, ASIDE, CALL, EARLIER, EXACT, REASONING, TEXT, Said
from prep_assets.samples import Group, Row, Sample, parts_of


class Column(NamedTuple):
    """A column with texts.

    Attributes:
        role: whose text it is and on which side it stands: ``chosen``, ``rejected``, ``responses`` and the fields of lines are sides, all others are the
            prompt, or the one conversation or document of a record. ``skip`` is a column without text, ``unread`` one that the schema leaves out.
        names: its names, of which a row has one at most.
        rule: what becomes of a value, by its name, see `formats.rule_named`; without one its strings stand verbatim, and messages are read as messages.
    """

    role: str
    names: tuple[str, ...]
    rule: str


def columns_of(items: Iterable[str], options: Mapping[str, Any]) -> list[Column]:
    """Return the columns that items ``role:option=names>rule`` list: names are those that the option gives, else those behind ``=``, if any."""
    columns = []
    for item in items:
        role, rest = item.split(":")
        rest, _, rule = rest.partition(">")
        option, _, default = rest.partition("=")
        names = options.get(option) or default.split(",")
        columns.append(Column(role, tuple(filter(None, names if isinstance(names, list | tuple) else [names])), rule))
    return columns


LINES: Mapping[str, str] = {
    "lines of pairs": "user:=prompt chosen:=chosen rejected:=rejected",
    "lines of prompts": "user:=prompt skip:=gold skip:=verifier skip:=arguments skip:=level",
}
"""Columns of the lines of a store, from which tokens are made."""
_OF_LINES = ("ordered", "labelled")
"""Rules of answers that become lines of preferences; a store of groups has them in the order of the row."""
NAMES: Mapping[str, str] = {
    **dict.fromkeys((*neutral_names(), "chat_template_kwargs"), "skip"),  # a render shows what template options change
    **dict.fromkeys(("images", "image", "videos", "video", "audios", "audio"), "files"),
    **dict.fromkeys(("tools", "functions", "available_tools"), "tools"),
    "documents": "documents",
}
"""Columns of any schema that are no texts, or texts in another form → rule. The strings of all others must stand in the record as they are."""


_PLAIN_ROLES = ("system", "user", "assistant", "prompt", "completion", "document", "chat", "chosen", "rejected")


class Reading(Struct, dict=True):
    """Reads rows of one schema.

    Attributes:
        schema: its name, then that of the schema whose columns they have; one without a definition is of a user, whose strings may stand anywhere.
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
        found = resolved(self.schema, self.options, self.gives)
        self.known, roles = found is not None or self.schema in LINES, dict[str, str]()
        items: Iterable[str] = LINES.get(self.schema, "").split()
        self.writes: Sequence[str] | None = ()
        if found is not None:
            self.schema, self.options, listed = found
            definition = definition_of(listed)
            items, self.writes = definition["x-columns"], definition.get("x-writes", None if definition.get("x-open") else ())
            roles = {tag: own if own in KNOWN else "user" for tag, own in roles_of(*found[:2])[0].items()}
        columns = columns_of(items, self.options)
        self.columns = [each._replace(rule="") if self.gives == "Group" and each.rule in _OF_LINES else each for each in columns]
        self.paired = self.gives != "Sample" and not any(column.role == "label" for column in self.columns)
        self.roles = {**ROLES, **roles}
        named = {suffix: [str(value) for key, value in self.options.items() if key.endswith(suffix)] for suffix in _FIELD_OPTIONS}
        self.callers = {*CALLERS, *named["function_tag"]}
        self.role_keys = (*named["role_key"], *named["role_tag"], "role", "from", "type")
        self.content_keys = (*named["content_key"], *named["content_tag"], "content", "value")
        self.file_keys = {*named["images_key"], *named["image_key"], *named["videos_key"], *named["audios_key"]}
        self.tool_keys = {*named["tools_key"]}
        self.marks = (self.options.get("image_token", "<image>"), "<audio>", "<video>")
        self.known_fields = {*_KNOWN_FIELDS, *self.content_keys, *self.role_keys}
        self._plain_roles = {tag: role for tag, role in self.roles.items() if tag not in self.callers}
        self._plans: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        self._mark = re.compile("|".join(re.escape(tag) for pair in self.tags for tag in pair) or "(?!)")

    def plain_rows(self, rows: ReadRows) -> list[Sequence[tuple[str, str]] | None]:
        """Return `plain` of each row; where messages are all that rows say, what other checks read in these too."""
        found: list[Sequence[tuple[str, str]] | None] = [None] * len(rows)
        for names, numbers in rows.by_columns.items() if self.known else ():
            plan = self._plan_of(names)
            turns, known = list[Turns | None](), dict[tuple[str, ...], list[str] | None]()
            if [role for _, role in plan] == ["chat"]:
                column = plan[0][0]
                turns = [*rows.turns(column, *_keys_of(rows[numbers[0]][column]))]
                known = {tags: self._roles_of(tags) for tags in {tags for tags, _ in filter(None, turns)}}
            for number in numbers:
                said = turns[number] if turns else None
                roles = None if said is None else known[said[0]]
                found[number] = self.plain(rows[number]) if said is None or roles is None else [*zip(said[1], roles, strict=True)]
        return found

    def _roles_of(self, tags: Sequence[str]) -> list[str] | None:
        """The roles of messages by their tags; `None` where one makes calls."""
        roles = [self._plain_roles[tag] for tag in tags if tag in self._plain_roles]
        return roles if len(roles) == len(tags) else None

    def plain(self, row: Row) -> list[tuple[str, str]] | None:
        """Return texts and roles of a row of strings and messages of two strings each, in order; `None` for any other row. Most rows are plain."""
        if not self.known:
            return None
        said = list[tuple[str, str]]()
        for name, role in self._plan_of(tuple(row)):
            value = row[name]
            if type(value) is str and role == "worked":
                said += [(piece, "assistant") for piece in worked_pieces(value) if piece.strip()]
            elif type(value) is str and role:
                said.append((value, role))
            elif type(value) is list and role in ("chat", "user", "chosen", "rejected"):
                messages = self._plain_messages(value)
                if messages is None:
                    return None
                if role == "user":
                    messages = [(text, EARLIER if its == "assistant" else its) for text, its in messages]
                elif role != "chat":
                    if any(its != "assistant" for _, its in messages):
                        return None
                    messages = [(text, role) for text, _ in messages]
                said += messages
            elif value:
                return None
        return said

    def _plain_messages(self, messages: Sequence[Row]) -> list[tuple[str, str]] | None:
        """Texts and roles of messages of two strings each; `None` where there are none, one of them is more, or makes a call."""
        said, roles = list[tuple[str, str]](), self._plain_roles
        try:
            role_key, text_key = _keys_of(messages)
            for message in messages:
                text = message[text_key]
                if len(message) != 2 or type(text) is not str:
                    return None
                said.append((text, roles[message[role_key]]))
        except (KeyError, TypeError):
            return None
        return said or None

    def sides(self, row: Row) -> dict[str, list[tuple[str, str]]] | None:
        """Return texts and roles of a plain row of a pair, by prompt and answer; `None` for any other row."""
        said = self.plain(row) if self.gives == "Pair" else None
        sides = {"prompt": list[tuple[str, str]](), "chosen": [], "rejected": []}
        for text, role in said or ():
            sides[role if role in sides else "prompt"].append((text, role if role in ("system", "user", "tool") else "assistant"))
        return None if said is None else sides

    def line(self, row: Row, form: str) -> Row | None:
        """Return the line of a plain row of a pair, all of whose texts stand in it as in the row; `None` for any other row."""
        sides = self.sides(row)
        if sides is None:
            return None
        if form == "messages":
            return {side: [{"role": role, "content": text} for text, role in said] for side, said in sides.items()}
        return {side: said[0][0] for side, said in sides.items()} if {*map(len, sides.values())} == {1} else None

    def _plan_of(self, names: tuple[str, ...]) -> list[tuple[str, str]]:
        if names not in self._plans:
            self._plans[names] = self._plan(names)
        return self._plans[names]

    def _plan(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Return the columns with texts and their roles, in order, a column without a role where it must be empty."""
        plan, left = list[tuple[str, str]](), {*names} - self.ignore - self.chosen_by
        for column in self.columns:
            for name in column.names:
                if name in left:
                    is_text = column.rule in ("", "beside_files", "side") and column.role in _PLAIN_ROLES
                    its_role = column.role if is_text and (column.rule != "side" or "prompt" in names) else ""
                    plan.append((name, "worked" if (column.role, column.rule) == ("assistant", "worked") else its_role))
                    left.remove(name)
        skipped = {name for name in left if NAMES.get(name) == "skip" and name != "chat_template_kwargs"}
        return [*plan, *((name, "") for name in left - skipped)]

    def files_in(self, row: Row) -> str:
        """Return the first of its columns with files that a row fills; ``""`` for none, and for a user's schema. A column that options name for a text has
        no files."""
        texts = {name for column in self.columns if column.role in _PLAIN_ROLES for name in column.names}
        keys = sorted({*self.file_keys, *FILES} - (texts - {*self.file_keys}) - self.ignore - self.chosen_by)
        columns = {key: value if isinstance(value, list) else [value] for key in keys if self.known and (value := row.get(key))}
        return next((key for key, listed in columns.items() if any(listed)), "")

    def texts(self, row: Row) -> list[Said]:
        """Return what a row says, in the order of its columns.

        Raises:
            Unlike: the row is not as its definition says.
        """
        try:
            return Walk(self, without(row, sorted(self.ignore))).all()
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise Unlike(f"it cannot be read by the columns of {self.schema}: {type(error).__name__}: {error}") from error

    def surplus(self, row: Row, example: object) -> str:
        """What the turns of an example say beyond the texts of its row, and what the definition says that its schema writes; ``""`` where nothing is left."""
        if (written := self.writes) is None or type(example).__name__ != self.gives or isinstance(example, Group):
            return ""
        if isinstance(example, Sample) and example.tokenized is not None:  # whose texts are those of its ids
            return ""
        if any(turn.role == "system" and not turn.text.strip() for turns in parts_of(example) for turn in turns) and not self._instructs(
            row
        ):
            return "its example has a system turn that says nothing, and it has none"
        regions = [region for turns in parts_of(example) for turn in turns for region in turn.regions]
        left = "\0".join(region.text for region in regions if region.kind == TEXT and not region.drop)
        try:
            said = [each.text for each in self.texts(row)]
        except Unlike:  # which is said of the row where it is compared
            return ""
        if self.calls and ("</tool_call>" in left or "</tool_response>" in left):  # which a render takes out of answers
            return ""
        # what stands for files is no text where a row has some, though a schema may leave it in its texts
        marks = self.marks if self.files_in(row) else ()
        others = (*written, *marks, *(tag for pair in self.tags for tag in pair))
        texts = [(text.strip(), 1) for text in said] + [(mark, -1) for mark in others]
        for text, count in sorted(texts, key=lambda each: -len(each[0])):
            left = left.replace(text, "\0", count)
        left = left.replace("\0", " ").strip()
        return f"its example says {left[:60]!r} as well" if left else ""

    def _instructs(self, value: Any) -> bool:
        """Whether anything of a row may be a system turn."""
        if isinstance(value, list | tuple):
            return any(map(self._instructs, value))
        if not isinstance(value, Mapping):
            return False
        named = {name for column in self.columns if column.role == "system" for name in column.names}
        tagged = (self.roles.get(str(as_text(value[key]))) == "system" for key in self.role_keys if key in value)
        return not named.isdisjoint(value) or any(tagged) or any(map(self._instructs, value.values()))


def _keys_of(messages: Any) -> tuple[str, str]:
    """The fields of messages with a role and a text."""
    first = messages[0] if isinstance(messages, list) and messages else None
    return ("role", "content") if isinstance(first, Mapping) and "role" in first else ("from", "value")


FILES = ("images", "image", "videos", "video", "audios", "audio")
"""Columns with files."""
_FIELD_OPTIONS = (
    *("role_key", "role_tag", "content_key", "content_tag", "images_key", "image_key", "videos_key", "audios_key", "tools_key"),
    "function_tag",
)


_KNOWN_FIELDS = (*REASONINGS, *CALLS, *FIELDS_OF_MESSAGES, *NAMES, *WEIGHTS, *STRETCHES, "refusal", "reasoning_details")
"""Fields of messages that `Walk.message` reads, or that are no texts, beside those that options name."""


class Walk:
    """One row on its way through its columns."""

    def __init__(self, reading: Reading, row: Row) -> None:
        self.reading, self.row, self.options = reading, row, reading.options
        self.said, self.turn, self.seen = list[Said](), 0, set[str]()
        self.side, self.prompt = "", "prompt" if reading.paired else ""
        self.marks = self._marks()

    def all(self) -> list[Said]:
        """Everything that the row says."""
        reading, row = self.reading, self.row
        for role, names, rule in reading.columns:
            if "." in names:  # the whole row
                self.seen.update(() if rule == "request" else row)  # which says what it reads
                if rule:
                    rule_named(rule)(self, row, role, "")
                continue
            for name in names:
                found = self._found(name)
                if found is not None:
                    self._column(role, name, found, rule)
        for name, value in row.items():
            if name not in (*self.seen, *reading.chosen_by) and value is not None:
                self._other(name, value)
        weighs = {name: value for name, value in row.items() if name not in reading.chosen_by}
        if (weight := weight_of(weighs)) not in (None, 1):  # that of all answers, times that of their parts
            weighed = (each._replace(weight=weight * (1.0 if each.weight is None else each.weight)) for each in self.said)
            self.said = [heavy if each.is_answer else each for each, heavy in zip(self.said, weighed, strict=True)]
        return self.said

    def _found(self, name: str) -> Any:
        """The value of a column, or at a dotted path; `None` where it is not there."""
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
        rule_named(rule or "text")(self, value, role, name)

    # A text, in pieces.

    def say(self, text: str, role: str, path: str, *, kind: str = TEXT, weight: float | None = None) -> None:
        """Add a text, cut at the marks of files and of reasoning."""
        side = role.partition("[")[0]
        spoken = "assistant" if side in ANSWERS[:3] else side
        answer = spoken in ("assistant", "completion")
        where = role if side in (*ANSWERS, *ASIDE) and self.reading.paired else self.prompt
        if role == "system":
            self.anywhere(text, path)
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
        words, blocks = blocks_of(said.text, said.role) if self.reading.calls and said.kind == TEXT else (said.text, [])
        if words.strip():
            yield said._replace(text=words)
        for block in blocks:
            if said.role == "tool":
                yield said._replace(text=block)
                continue
            call = json.loads(call_again(block))
            yield from (said._replace(kind=CALL, text=leaf) for leaf in (call["name"], *json_leaves(call["arguments"], self.reading.sorts)))

    def _marks(self) -> re.Pattern[str] | None:
        """What stands for files in a text; `None` for a row without files."""
        keys = (*self.reading.file_keys, *FILES)
        if not any(self.row.get(key) is not None for key in keys):
            return None
        return re.compile("|".join(map(re.escape, self.reading.marks)))

    # Columns by their names.

    def _other(self, name: str, value: Any) -> None:
        rule = "tools" if name in self.reading.tool_keys else "files" if name in self.reading.file_keys else NAMES.get(name.lower())
        if rule in ("tools", "documents"):
            rule_named(rule)(self, value, "", name)
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
                if key not in NAMES and (inside := f"{path}.{key}") not in self.reading.chosen_by:
                    self.anywhere(inner, inside, kind)
        elif isinstance(value, list | tuple):
            for inner in value:
                self.anywhere(inner, path, kind)

    # Messages.

    def chat(self, messages: Sequence[Any], role: str, path: str) -> None:
        """Add a list of messages. Results of tools come in the order of their calls, if both have ids.

        Args:
            role: of the column: a side, ``chat``, or ``prompt`` or ``user`` for one whose answers are not trained.
        """
        listed = [*in_call_order(messages, self._role)]
        for message, following in zip(listed, [*listed[1:], None], strict=True):
            self.message(message, role, path, called=following is not None and self._role(following) == "tool")
            self.turn += 1

    def _tag(self, message: Row) -> Any:
        return as_text(next((message[key] for key in self.reading.role_keys if isinstance(message.get(key), str | bytes)), None))

    def _role(self, message: Row) -> str:
        return self.reading.roles.get(self._tag(message), "user")

    def message(self, message: Row, role: str, path: str, *, called: bool = False) -> None:
        """Add one message: reasoning, content, calls. `called`: the result of a tool follows."""
        own = self._role(message)
        weight = weight_of(message)
        if weight is None and own == "assistant" and role in ("prompt", "user"):
            weight = 0.0
        if role.partition("[")[0] in ANSWERS[:3]:
            whose = role if own != "system" else "system"
        else:
            whose = "document" if role == "document" else own
        for key in REASONINGS:
            if isinstance(message.get(key), str) and message[key].strip():
                self.say(message[key], whose, f"{path}.{key}", kind=REASONING, weight=weight)
                break
        else:
            for detail in message.get("reasoning_details") or ():
                for key in ("text", "summary"):
                    if isinstance(detail.get(key), str):
                        self.say(detail[key], whose, f"{path}.reasoning_details", kind=REASONING, weight=weight)
        key = next((key for key in self.reading.content_keys if message.get(key) is not None), "content")
        content = as_text(message.get(key))
        stretches = next((message[name] for name in STRETCHES if message.get(name)), None)
        if isinstance(content, str) and (
            self._tag(message) in self.reading.callers or (called and own == "assistant" and is_call(content))
        ):
            self.calls(content, whose, f"{path}.{key}", weight)
        elif isinstance(content, str) and stretches:
            for piece, own_weight in pieces_of(content, stretches):
                self.say(piece, whose, f"{path}.{key}", weight=own_weight if weight is None else own_weight * weight)
        elif isinstance(content, str):
            self.say(content, whose, f"{path}.{key}", weight=weight)
        else:
            for part in content or ():
                self.part(part, whose, f"{path}.{key}", weight)
        if not content and isinstance(message.get("refusal"), str):
            self.say(message["refusal"], whose, f"{path}.refusal", weight=weight)
        for name in CALLS:
            if message.get(name):
                self.calls(message[name], whose, f"{path}.{name}", weight)
        for name in ("tools", "functions"):
            if message.get(name):
                rule_named("tools")(self, message[name], "", f"{path}.{name}")
        for name in message:
            if name not in self.reading.known_fields:
                self.anywhere(message[name], f"{path}.{name}")

    def part(self, part: Row, role: str, path: str, weight: float | None) -> None:
        """Add a part of a content."""
        kind, weight = part.get("type"), weight if (own := weight_of(part)) is None else own
        if kind in ("reasoning", "thinking"):
            text = next(part[key] for key in (kind, "text", "value") if part.get(key) is not None)
            self.say(text, role, path, kind=REASONING, weight=weight)
        elif kind in ("tool_call", "tool_use"):
            held = next((part[key] for key in ("value", "tool_call") if part.get(key) is not None), part)
            self.calls(held, role, path, weight)
        elif kind in ("image", "audio", "video", "image_url", "audio_url", "video_url"):
            return
        else:
            text = next((part[key] for key in ("text", "value", "content") if part.get(key) is not None), "")
            self.say(text, role, path, weight=weight)

    def calls(self, value: Any, role: str, path: str, weight: float | None) -> None:
        """Add tool calls: names, keys and values of arguments."""
        parsed = json.loads(value) if isinstance(value, str) else value
        for call in [parsed] if isinstance(parsed, Mapping) else parsed:
            function = call["function"] if isinstance(call.get("function"), Mapping) else call
            arguments: Any = next((function[key] for key in ("arguments", "parameters", "input") if function.get(key)), {})
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
            for leaf in (function["name"], *json_leaves(arguments, self.reading.sorts)):
                self.say(leaf, role, path, kind=CALL, weight=weight)
