"""Read rows as examples, through views that track the fields or in columns where rows are plain texts; speaker names; users' mask builders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import Any, ClassVar, Literal, TypeVar

import yaml
from msgspec import Struct, field

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import ConfigError, PrepAssetsError, Refused
from prep_assets.own_code import own_function
from prep_assets.samples import (
    ASSISTANT,
    SYSTEM,
    TEXT,
    THINKING,
    TOOL,
    TOOL_CALL,
    USER,
    Contrast,
    Example,
    PlainChat,
    PlainPair,
    Region,
    Row,
    Sample,
    Turn,
    changed,
    over_turns,
    parts_of,
    turn,
)
from prep_assets.schemas.fields import (
    DECISIVE,
    HELD_OUT,
    MEDIA,
    NEUTRAL,
    REASONING,
    SPLIT,
    View,
    as_weight,
    decides,
    has_content,
    join,
    require_agreement,
    unread,
    view_of,
    whole,
)
from prep_assets.schemas.registry import Convert, OwnFunction
from prep_assets.schemas.turns import require_offered

# Plain rows: messages with a role and a text each, or a prompt and two answers. Most rows of chats and pairs are plain, and are read without a view of
# each message.
#
# For each set of columns the first row is read through a view (see `fields.View`). If the schema reads only the columns with the texts, further plain rows
# with the same columns are read by the code below.

_FEW = 8
"""Smaller batches that are not plain are read row by row."""
_Convert = TypeVar("_Convert", bound=Callable[..., Any])


class PlainMessages(Struct, frozen=True):
    """Reads plain messages.

    Attributes:
        messages_key: the column with the messages.
        role_key, content_key: the two fields of a message.
        roles: the tags of plain messages → their roles.
        check: rejects turns whose roles the schema does not accept.
        beside: further columns that the schema reads in every row, whole or as a string, and the values that add nothing to a chat.
        read_beside: further fields that it reads in every message.
    """

    messages_key: str
    role_key: str
    content_key: str
    roles: Mapping[str, str]
    check: Callable[[tuple[Turn, ...]], None]
    beside: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    read_beside: tuple[str, ...] = ("tool_calls", *REASONING, "tool_call_id", "name")
    _accepted: dict[tuple[str, ...], bool] = field(default_factory=dict)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that hold the texts."""
        return frozenset([self.messages_key])

    def reads_all(self, row: Row) -> bool:
        """Whether the schema is certain to read all of the messages of a row: each has a text or none, and maybe reasoning, a name, an id, and calls."""
        try:
            messages = row[self.messages_key]
            fields = set[str]().union(*messages)
            calls = [call for message in messages for call in message.get("tool_calls") or ()] if "tool_calls" in fields else []
            functions = list(map(itemgetter("function"), calls))
            objects = [*messages, *calls, *functions]
            return (
                {dict} >= {*map(type, objects)}
                and bytes not in {*map(type, chain.from_iterable(map(dict.values, objects)))}
                and {str, type(None)} >= {type(message.get(self.content_key)) for message in messages}
                and {self.role_key, self.content_key, *self.read_beside} >= fields
                and {"type", "id", "function"} >= set[str]().union(*calls)
                and {"name", "arguments"} >= set[str]().union(*functions)
            )
        except (AttributeError, KeyError, TypeError):  # no list of objects
            return False

    def read(self, rows: Sequence[Row]) -> list[PlainChat | None]:
        """One chat a row; `None` where the schema has to read the row."""
        chats = plain_chats([row[self.messages_key] for row in rows], self.role_key, self.content_key, self.roles)
        accepted = {roles for roles in {chat.roles for chat in chats if chat is not None} if self.accepts(roles)}
        return [chat if chat is not None and chat.roles in accepted else None for chat in chats]

    def accepts(self, roles: tuple[str, ...]) -> bool:
        """Whether the schema accepts a chat with these roles."""
        if roles not in self._accepted:
            try:
                self.check(tuple(turn(role, "text") for role in roles))
                self._accepted[roles] = True
            except Refused:
                self._accepted[roles] = False
        return self._accepted[roles]


def plain_chats(conversations: Sequence[Any], role_key: str, content_key: str, known: Mapping[str, str]) -> list[PlainChat | None]:
    """Lists of messages with a role and a text each, as columns; `None` for any others. Where one of many is not plain, parts are tried on their own.

    Args:
        known: the tags of plain messages → their roles.
    """
    try:
        ends = accumulate(map(list.__len__, conversations), initial=0)
        messages = list(chain.from_iterable(conversations))
        texts = tuple(map(itemgetter(content_key), messages))
        roles = tuple(map(known.__getitem__, map(itemgetter(role_key), messages)))
        if {*map(dict.__len__, messages)} - {2} or {*map(type, texts)} - {str} or not all(texts) or any(map(str.isspace, texts)):
            raise TypeError
        return [PlainChat(roles[start:end], texts[start:end]) for start, end in pairwise(ends)]
    except (KeyError, TypeError):
        count = len(conversations)
        size = count // 2 if count >= _FEW else 1
        parts = [conversations[at : at + size] for at in range(0, count, size)] if count > 1 else []
        return [chat for part in parts for chat in plain_chats(part, role_key, content_key, known)] or [None]


class PlainPairs(Struct, frozen=True):
    """Reads plain pairs from two or more columns.

    Attributes:
        columns: the columns that hold the texts.
        split: gives the prompt and both answers of a row; `None` where the schema has to read the row.
    """

    columns: frozenset[str]
    split: Callable[[Row], tuple[PlainChat | None, object, object] | None]
    beside: ClassVar[Mapping[str, tuple[object, ...]]] = {}

    def read(self, rows: Sequence[Row]) -> list[PlainPair | None]:
        """One pair a row: a prompt that ends with a user turn, and two different answers. `None` where the schema has to read the row."""
        return list(map(self._pair, rows))

    def _pair(self, row: Row) -> PlainPair | None:
        prompt, chosen, rejected = self.split(row) or (None, None, None)
        if prompt is None or not prompt.roles or prompt.roles[-1] != USER or type(chosen) is not str or type(rejected) is not str:
            return None
        if not chosen or chosen.isspace() or not rejected or rejected.isspace() or chosen == rejected:
            return None
        return PlainPair(prompt, chosen, rejected)


PlainRows = PlainMessages | PlainPairs


def reads_plain(convert: _Convert, plain: PlainRows) -> _Convert:
    """`convert` with the reader of its plain rows attached."""
    convert.plain_rows = plain  # type: ignore[attr-defined]
    return convert


def plain_rows_of(convert: Callable[..., Any]) -> PlainRows | None:
    """The reader of a schema's plain rows; `None` where it has none."""
    plain: PlainRows | None = getattr(convert, "plain_rows", None)
    return plain


def plain_roles(tags: Mapping[str, str], without: Sequence[str]) -> dict[str, str]:
    """The tags of plain messages → their roles: those of system, user and assistant, except the tags `without`."""
    return {tag: role for tag, role in tags.items() if role in (SYSTEM, USER, ASSISTANT) and tag not in without}


# Speaker names where the chat template shows none: left out and counted, or written in front of the text.


def without_speakers(mode: Literal["leave_out", "write"], convert: Convert) -> Convert:
    """`convert`, with names removed from the turns of its examples, except tool turns. With ``leave_out`` the name fields count as passed over."""

    def unnamed(row: Row) -> Example | None:
        example, names = convert(row), set[str]()
        if example is None or (isinstance(example, Sample) and example.tokenized is not None):
            return example

        def change(turns: Sequence[Turn]) -> tuple[Turn, ...]:
            have_names = [turn.role != TOOL and turn.name is not None for turn in turns]
            names.update(turn.name for turn, is_named in zip(turns, have_names, strict=True) if is_named and turn.name)
            return tuple(_without_name(turn, mode) if is_named else turn for turn, is_named in zip(turns, have_names, strict=True))

        example = over_turns(example, change)
        if mode == "leave_out" and isinstance(row, View):
            row.book.dropped.update(join(view.path, "name") for view in row.book.views if dict.get(view, "name") in names)
        return example

    plain = plain_rows_of(convert)  # plain messages have no names
    plain = changed(plain, read_beside=plain.read_beside[:-1]) if isinstance(plain, PlainMessages) else plain
    return unnamed if plain is None else reads_plain(unnamed, plain)


def _without_name(turn: Turn, mode: str) -> Turn:
    if mode == "leave_out" or not (turn.name or "").strip():
        return changed(turn, name=None)
    prefix, regions = f"{turn.name}: ", list(turn.regions)
    index = next((index for index, region in enumerate(regions) if region.kind != THINKING and not region.drop), len(regions))
    first = regions[index] if index < len(regions) else Region(TEXT, "")
    if first.kind != TEXT:
        regions.insert(index, Region(TEXT, prefix, first.loss_weight))
    elif first.text.lstrip().startswith(tuple(opening for opening, _ in REASONING_TAGS)):
        detail = (
            f"{turn.name!r} speaks in a text that begins with reasoning, {first.text[:40]!r}, and speaker_names: write puts names there. "
        )
        raise Refused("name_before_reasoning", f"{detail}Put the reasoning into a field of its own, or set speaker_names: leave_out")
    else:
        regions[index : index + 1] = [changed(first, text=prefix + first.text)]
    return changed(turn, name=None, regions=tuple(regions))


# Users' mask builders: functions from a sample to the loss weights of its turns or regions.


def weighed_by(path: str, convert: Convert) -> Convert:
    """`convert`, with the loss weights of its samples set by the function at `path`, ``package.module:function``.

    The function returns one entry a turn: a weight for the whole turn, `None` to leave it as it is, or a list of these, one a region.

    Raises:
        ConfigError: the function cannot be imported.
    """
    function = own_function("weigh:", path)

    def weighed(row: Row) -> Example | None:
        sample = convert(row)
        if not isinstance(sample, Sample):
            return sample
        if sample.tokenized is not None:
            raise Refused("token_ids", f"the record brings token ids with their own weights; {path!r} weighs turns")
        weights = function(sample)
        if len(weights) != len(sample.turns):
            raise Refused("length_mismatch", f"{path!r} gives {len(weights)} weights for {len(sample.turns)} turns")
        return changed(sample, turns=tuple(map(_with_weights, range(len(weights)), sample.turns, weights)))

    return weighed


def _with_weights(number: int, turn: Turn, turn_weights: Any) -> Turn:
    weights, where = turn_weights if isinstance(turn_weights, list | tuple) else [turn_weights] * len(turn.regions), f"turn {number}"
    if len(weights) != len(turn.regions):
        raise Refused("length_mismatch", f"{where} has {len(turn.regions)} regions, and the function gives {len(weights)} weights")
    regions = (
        region if weight is None else changed(region, loss_weight=as_weight(weight, where))
        for region, weight in zip(turn.regions, weights, strict=True)
    )
    return changed(turn, regions=tuple(regions))


# Reading rows. Every field of a row is accounted for: read by the schema, passed over by its name, listed under `ignore`, or an error.

Verdict = Literal["used", "passed over", "decisive", "chosen by", "unknown"]
"""The verdict on a field's name. A field that rows are chosen by (`used`) may stay unread. If it is decisive as well (``chosen by``), it may do so only
where it is 1 or true, which equals its absence: choosing rows by a system prompt or a weight does not put it into the example."""
_MOST_SHOWN = 80
"""Most characters of a value in an error."""
MOST_COLUMNS = 1024
"""Most sets of columns that a reader remembers."""


class Account(Struct):
    """An account of the fields that a schema did not read.

    Attributes:
        ignore: paths that the configuration lists; a schema never sees these fields.
        used: paths of fields that choose rows or domains.
        counts: path → rows in which the field had content and was passed over.
        unknown: path → rows in which the field had content and no option accounts for it.
        examples: path → a value of each unknown field.
        trained: whether the rows are for training, so that none may say that it is held out (`HELD_OUT`).
    """

    ignore: Sequence[str] = ()
    used: Sequence[str] = ()
    counts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Any] = field(default_factory=dict)
    trained: bool = False
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _ignored_keys: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.ignore:
            holder, _, key = path.rpartition(".")
            self._ignored_keys.setdefault(holder, []).append(key)

    def view(self, row: Row) -> View:
        """The view of a row, without ignored fields."""
        return view_of(row, self._ignored_keys)

    def note(self, dropped: Iterable[str], unread_fields: Iterable[tuple[str, Any]]) -> None:
        """Account for a converted row.

        Args:
            dropped: paths of its ignored fields with content.
            unread_fields: their paths and values.

        Raises:
            Refused: it has a decisive field that the schema does not read.
        """
        verdicts = [(path, value, self.verdict(path)) for path, value in dict(unread_fields).items()]
        for path, value, verdict in verdicts:  # before anything is counted: a rejected row must not count
            if verdict == "decisive" or (verdict == "chosen by" and value != 1):
                raise Refused(
                    "unsupported_media" if path.rpartition(".")[2] in MEDIA else "unsupported_column",
                    f"the record has {path!r}, which this schema does not read: {shown(value)}. Where it means nothing here, list it under "
                    "`ignore`",
                    stage="schema",
                )
        for path, value, verdict in verdicts:
            held_out = self.trained and path.lower() == SPLIT and path not in self.ignore and HELD_OUT.fullmatch(str(value))
            if verdict == "passed over" and not held_out:
                self.counts[path] += 1
            elif verdict in ("passed over", "unknown"):
                self.unknown[path] += 1
                self.examples.setdefault(path, value)
        self.counts.update(dropped)

    def skim(self, row: Row, read: Set[str]) -> None:
        """Account for a plain row of which the columns `read` were read; see `note`."""
        if len(row) > len(read):
            self.note((), ((key, value) for key, value in row.items() if key not in read and has_content(value)))

    def check(self, where: str, remedy: Callable[[Account], str] | None = None) -> None:
        """Raise if a field was neither read nor accounted for.

        Args:
            where: the schema and its source, for the error.
            remedy: gives the advice in the error; without it, the error shows the `ignore` line for the domain.

        Raises:
            ConfigError: names the fields, how many rows have them, an example of each, and what to write.
        """
        if not self.unknown:
            return
        lines = "\n".join(
            f"  {path!r} in {count:,} {'row' if count == 1 else 'rows'}, e.g. {shown(self.examples[path])}"
            for path, count in sorted(self.unknown.items())
        )
        raise ConfigError(
            f"{where} does not read these fields, which may matter in training:\n{lines}\n"
            + (self._ignore_hint() if remedy is None else remedy(self))
        )

    def _ignore_hint(self) -> str:
        """The line that leaves out the unknown fields; fields whose names say that they decide what is trained or asked are not offered."""
        decisive, offered = ([path for path in sorted(self.unknown) if decides(path) is kind] for kind in (True, False))
        hint = "Use a schema or options that read them."
        if held_out := next((path for path in self.unknown if path.lower() == SPLIT), ""):
            hint += f" {held_out} says that rows are held out: choose those to train, as `where: {{{held_out}: train}}` does."
        if decisive:
            hint += f" By their names, {', '.join(decisive)} decide what is trained or asked: rewrite the rows so that a schema reads them."
        if offered:
            without = "the others" if decisive else "them"
            hint += f" If training does not need {without}, add to the domain:\n  ignore: {in_one_line([*self.ignore, *offered])}"
        return hint

    def verdict(self, path: str) -> Verdict:
        """The verdict on the field at `path`, by its name."""
        if (cached := self._verdicts.get(path)) is not None:
            return cached
        name = path.rpartition(".")[2]
        verdict: Verdict = "unknown"
        if path in self.ignore:
            verdict = "passed over"
        elif any(path == used_path or path.startswith(f"{used_path}.") for used_path in self.used):
            verdict = "chosen by" if name in DECISIVE else "used"
        elif name.lower() in NEUTRAL:
            verdict = "passed over"
        elif name in DECISIVE:
            verdict = "decisive"
        self._verdicts[path] = verdict
        return verdict


def in_one_line(value: Any) -> str:
    """`value` in YAML's flow style, on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, allow_unicode=True, sort_keys=False)
    return text.strip()


def shown(value: object) -> str:
    """The `repr` of a value, shortened for an error."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


class Reader(Struct, frozen=True):
    """A row function, with an account of the fields that it does not read."""

    convert: Convert
    account: Account
    _columns: dict[tuple[str, ...], Set[str] | None] = field(default_factory=dict)
    """Columns of a row → those that the schema reads beside those with the texts; `None` if it has to read such rows through a view."""

    def __call__(self, payload: Row) -> Example | None:
        plain, columns = plain_rows_of(self.convert), tuple(payload)
        if isinstance(plain, PlainMessages) and (beside := self._columns.get(columns)) is not None and plain.reads_all(payload):
            read = beside | plain.columns  # no view has to track what is read of it
            if (example := self.convert({column: payload[column] for column in read})) is not None:
                _reject_unstorable(example)
                self.account.skim(payload, read)
            return example
        row = self.account.view(payload)
        try:
            if (example := self.convert(row)) is None:
                return None
            _reject_unstorable(example)  # before anything of the row is counted
            example, unread_fields = _without_views(example), unread(row)
            if unread_fields:
                require_agreement(row)
            if isinstance(self.convert, OwnFunction):
                passed_over = lambda path: self.account.verdict(path) in ("passed over", "used")  # noqa: E731
                unread_fields = self.convert.unread(whole(self.account.view(payload)), unread_fields, passed_over)
            self.account.note(row.book.dropped, unread_fields)
            if plain is not None and columns not in self._columns and len(self._columns) < MOST_COLUMNS:
                ignored = {*self.account.ignore}
                ignores_texts = any("." in path or path in plain.columns for path in ignored)
                beside = {*columns} - row.left - ignored - plain.columns
                fits = plain.columns <= {*columns} - row.left and beside <= plain.beside.keys() and not ignores_texts
                self._columns[columns] = beside if fits else None
            return example
        finally:
            row.book.views.clear()  # a book and its views form a cycle, which is not collected while rows are read
            row.book.lists.clear()

    def plain(self, first: Row) -> PlainRows | None:
        """The reader of plain rows with the columns of `first`; `None` where the schema has to read them, or reads more than the texts."""
        columns, plain = tuple(first), plain_rows_of(self.convert)
        if plain is not None and columns not in self._columns:
            self._convert_row(first)
        return plain if self._columns.get(columns) == set() else None

    def rows(self, payloads: Sequence[Row], *, plain: bool = True) -> list[Example | PlainChat | PlainPair | Refused]:
        """The example of each row, or the error that rejects it.

        Args:
            plain: whether plain rows are returned as columns (`PlainChat`, `PlainPair`).
        """
        examples: list[Example | PlainChat | PlainPair | Refused | None] = [None] * len(payloads)
        plain_rows = plain_rows_of(self.convert) if plain else None
        for columns, numbers in rows_by_columns(payloads).items() if plain_rows is not None else ():
            if columns not in self._columns:
                first = numbers.pop(0)
                examples[first] = self._convert_row(payloads[first])
            if plain_rows is None or (beside := self._columns.get(columns)) is None:
                continue
            read = plain_rows.columns | beside
            if beside:
                numbers = [number for number in numbers if all(payloads[number][column] in plain_rows.beside[column] for column in beside)]
            for number, plain_example in zip(numbers, plain_rows.read([payloads[number] for number in numbers]), strict=True):
                examples[number] = plain_example
                if plain_example is not None and len(columns) > len(read):
                    try:
                        self.account.skim(payloads[number], read)
                    except Refused as rejection:
                        examples[number] = rejection
        return [self._convert_row(payload) if example is None else example for payload, example in zip(payloads, examples, strict=True)]

    def _convert_row(self, payload: Row) -> Example | Refused:
        try:
            return apply(self, payload)
        except Refused as rejection:
            return rejection


def rows_by_columns(rows: Sequence[Row]) -> dict[tuple[str, ...], list[int]]:
    """Columns → the indices of the rows that have them."""
    columns = [tuple(row) for row in rows]
    if columns and columns.count(columns[0]) == len(columns):
        return {columns[0]: list(range(len(rows)))}
    numbers_by_columns: dict[tuple[str, ...], list[int]] = {}
    for number, column_names in enumerate(columns):
        numbers_by_columns.setdefault(column_names, []).append(number)
    return numbers_by_columns


def _without_views(example: Example) -> Example:
    """`example` with plain dicts where a schema passed on parts of the row unchanged."""
    if isinstance(example, Contrast) or not (example.tools or example.documents or example.template_options):
        return example
    tools, documents = (tuple(map(whole, values)) for values in (example.tools, example.documents))
    return changed(example, tools=tools, documents=documents, template_options=whole(example.template_options))


def apply(convert: Convert, payload: Row) -> Example:
    """`convert(payload)`, with every failure raised as `Refused` of stage ``schema``.

    A schema sees arbitrary JSON. Any exception that it raises is taken as a fault of the row and shown in the rejection (``schema_error``); `None`
    rejects the row as well (``skipped_by_schema``). So does a decisive field that the schema does not read, see `Account`.
    """
    reader = convert if isinstance(convert, Reader) else Reader(convert, Account())
    try:
        example = reader(payload)
    except Refused as rejection:
        rejection.stage = rejection.stage or "schema"
        raise
    except PrepAssetsError:
        raise
    except Exception as error:
        raise Refused("schema_error", f"{type(error).__name__}: {error}", stage="schema") from error
    if example is None:
        raise Refused("skipped_by_schema", "the schema returned None", stage="schema")
    return example


def _reject_unstorable(example: Example) -> None:
    """Reject calls of tools that are not on offer (``unknown_tool``), and what stores cannot hold: white space with its own weight next to reasoning or a
    call (``weighted_space``), and outside of documents and chats, whose stores alone have an attention mask, a region that is rendered and not attended to
    (``not_attended``)."""
    has_mask = isinstance(example, Sample) and example.label is None
    if not isinstance(example, Contrast) and example.tools:
        require_offered(chain.from_iterable(parts_of(example)), example.tools, example.template_options)
    for turn in chain.from_iterable(parts_of(example)):
        if len(turn.regions) > 1:
            _reject_weighted_space(turn)
        for region in () if has_mask else turn.regions:
            if not region.attend and not region.drop:
                detail = f"region {region.kind!r} in a turn of role {turn.role} is not attended to; only tokens of documents and chats have an attention mask. "
                raise Refused("not_attended", detail + "Drop it (semantic_drop_mask), or attend to it", stage="schema")


def _reject_weighted_space(turn: Turn) -> None:
    """Reject white space next to reasoning or a tool call with another weight or attention: a render does not tell it from the template's white space."""
    for first, second in pairwise(turn.regions):
        for space, neighbour in ((first, second), (second, first)):
            is_beside = space.kind == TEXT and space.text.isspace() and neighbour.kind in (THINKING, TOOL_CALL)
            if is_beside and (space.loss_weight, space.attend) != (neighbour.loss_weight, neighbour.attend):
                weights = [f"{region.loss_weight}{'' if region.attend else ' and no attention'}" for region in (space, neighbour)]
                raise Refused(
                    "weighted_space",
                    f"a turn of role {turn.role} has white space of weight {weights[0]} beside a region {neighbour.kind!r} of weight {weights[1]}. "
                    "Give both one weight, or leave the white space out",
                    stage="schema",
                )
