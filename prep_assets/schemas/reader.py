"""Rows → examples: through views that note what is read, or in columns where rows are nothing but texts; speaker names and mask builders of the user's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import Any, Literal, TypeVar

import yaml

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import ConfigError, PrepAssetsError, Refused
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
    Group,
    Pair,
    PlainChat,
    PlainPair,
    Region,
    Sample,
    Turn,
    over_turns,
    turn,
)
from prep_assets.schemas.fields import DECISIVE, MEDIA, NEUTRAL, Row, View, as_weight, has_content, join, unread, view_of, whole
from prep_assets.schemas.registry import Convert, OwnFunction, own_function

# Rows that are nothing but texts: messages with a role and a text each, or two answers to them. Most rows of chats and pairs are, and are
# read without a view of each message.
#
# What a schema reads of such a row is seen once for each set of columns, by a view (see `fields.View`). Where that is the columns with the texts alone, further
# rows with the same columns are read here.

_FEW = 8
"""Rows that are read one by one where one among them is not plain."""
_Convert = TypeVar("_Convert", bound=Callable[..., Any])


@dataclass(frozen=True)
class PlainMessages:
    """Reads such rows.

    Attributes:
        messages_key: the column with the messages.
        role_key, content_key: the two fields of a message.
        roles: the tags that are read here, and the roles they stand for.
        check: refuses turns whose roles the schema does not accept.
    """

    messages_key: str
    role_key: str
    content_key: str
    roles: Mapping[str, str]
    check: Callable[[tuple[Turn, ...]], None]
    _accepted: dict[tuple[str, ...], bool] = field(default_factory=dict)

    @property
    def columns(self) -> frozenset[str]:
        """The columns with the texts."""
        return frozenset([self.messages_key])

    def read(self, rows: Sequence[Row]) -> list[PlainChat | None]:
        """The chats of rows; `None` where the schema itself has to read one."""
        chats = self._chats([row[self.messages_key] for row in rows])
        accepted = {roles for roles in {chat.roles for chat in chats if chat is not None} if self.accepts(roles)}
        return [chat if chat is not None and chat.roles in accepted else None for chat in chats]

    def _chats(self, conversations: list[Any]) -> list[PlainChat | None]:
        """As `plain_chat`, of many at once. Where one is not plain, both halves are tried for themselves."""
        if len(conversations) < _FEW:
            return [plain_chat(messages, self.role_key, self.content_key, self.roles) for messages in conversations]
        try:
            ends = accumulate(map(list.__len__, conversations), initial=0)
            messages = list(chain.from_iterable(conversations))
            texts = tuple(map(itemgetter(self.content_key), messages))
            roles = tuple(map(self.roles.__getitem__, map(itemgetter(self.role_key), messages)))
            if {*map(dict.__len__, messages)} - {2} or {*map(type, texts)} - {str} or not all(texts) or any(map(str.isspace, texts)):
                raise TypeError
            return [PlainChat(roles[start:end], texts[start:end]) for start, end in pairwise(ends)]
        except (KeyError, TypeError):
            half = len(conversations) // 2
            return self._chats(conversations[:half]) + self._chats(conversations[half:])

    def accepts(self, roles: tuple[str, ...]) -> bool:
        """Whether the schema accepts turns of these roles."""
        if roles not in self._accepted:
            try:
                self.check(tuple(turn(role, "text") for role in roles))
                self._accepted[roles] = True
            except Refused:
                self._accepted[roles] = False
        return self._accepted[roles]


def plain_chat(messages: object, role_key: str, content_key: str, known: Mapping[str, str]) -> PlainChat | None:
    """Messages of a role and a text each, in columns; `None` for any others.

    Args:
        known: the tags that are read here, and the roles they stand for.
    """
    if type(messages) is not list:
        return None
    roles: list[str] = []
    texts: list[str] = []
    for message in messages:
        if type(message) is not dict or len(message) != 2:
            return None
        text, tag = message.get(content_key), message.get(role_key)
        if type(text) is not str or type(tag) is not str or tag not in known or not text or text.isspace():
            return None
        roles.append(known[tag])
        texts.append(text)
    return PlainChat(tuple(roles), tuple(texts))


@dataclass(frozen=True)
class PlainPairs:
    """Reads pairs of two columns, or three.

    Attributes:
        columns: those with the texts.
        split: the prompt and both answers of a row; `None` where the schema itself has to read it.
    """

    columns: frozenset[str]
    split: Callable[[Row], tuple[PlainChat | None, object, object] | None]

    def read(self, rows: Sequence[Row]) -> list[PlainPair | None]:
        """The pairs of rows: a prompt that a user ends, and two answers that differ. `None` where the schema itself has to read one."""
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
    """`convert`, with what reads its plain rows."""
    convert.plain_rows = plain  # type: ignore[attr-defined]
    return convert


def plain_rows_of(convert: Callable[..., Any]) -> PlainRows | None:
    """What reads the plain rows of a schema; `None` where it has none."""
    plain: PlainRows | None = getattr(convert, "plain_rows", None)
    return plain


def plain_roles(tags: Mapping[str, str], without: str | None = None) -> dict[str, str]:
    """The tags whose messages may be plain: those of system, user and assistant, but for one that means something else."""
    return {tag: role for tag, role in tags.items() if role in (SYSTEM, USER, ASSISTANT) and tag != without}


# Names of speakers where the chat template shows none: left out and counted, or written in front of what is said.


def without_speakers(mode: Literal["leave_out", "write"], convert: Convert) -> Convert:
    """The row function `convert`, in whose examples no turn but a tool's has a name. Where names are left out, their fields count as passed over."""

    def unnamed(row: Row) -> Example | None:
        example, names = convert(row), set[str]()
        if example is None or (isinstance(example, Sample) and example.tokenized is not None):
            return example

        def change(turns: Sequence[Turn]) -> tuple[Turn, ...]:
            named = [turn.role != TOOL and turn.name is not None for turn in turns]
            names.update(turn.name for turn, speaks in zip(turns, named, strict=True) if speaks and turn.name)
            return tuple(_unnamed(turn, mode) if speaks else turn for turn, speaks in zip(turns, named, strict=True))

        example = over_turns(example, change)
        if mode == "leave_out" and isinstance(row, View):
            row.book.dropped.update(join(view.path, "name") for view in row.book.views if dict.get(view, "name") in names)
        return example

    plain = plain_rows_of(convert)  # whose messages have no names
    return unnamed if plain is None else reads_plain(unnamed, plain)


def _unnamed(turn: Turn, mode: str) -> Turn:
    if mode == "leave_out" or not (turn.name or "").strip():
        return replace(turn, name=None)
    prefix, regions = f"{turn.name}: ", list(turn.regions)
    at = next((at for at, region in enumerate(regions) if region.kind != THINKING and not region.drop), len(regions))
    first = regions[at] if at < len(regions) else Region(TEXT, "")
    if first.kind != TEXT:
        regions.insert(at, Region(TEXT, prefix, first.loss_weight))
    elif first.text.lstrip().startswith(tuple(opening for opening, _ in REASONING_TAGS)):
        detail = (
            f"{turn.name!r} speaks in a text that begins with reasoning, {first.text[:40]!r}, and speaker_names: write puts names there. "
        )
        raise Refused("name_before_reasoning", f"{detail}Put the reasoning into a field of its own, or set speaker_names: leave_out")
    else:
        regions[at : at + 1] = [replace(first, text=prefix + first.text)]
    return replace(turn, name=None, regions=tuple(regions))


# Mask builders of the user's own: a function from the sample of a row to the loss weights of its turns, or of their regions.


def weighed_by(path: str, convert: Convert) -> Convert:
    """The row function `convert`, whose samples get the weights that the function at `path`, ``package.module:function``, gives.

    It returns one entry a turn: a weight for all of it, `None` to leave the turn as it is, or one of these for each of its regions.

    Raises:
        ConfigError: the function does not exist.
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
        return replace(sample, turns=tuple(map(_weighed, range(len(weights)), sample.turns, weights)))

    return weighed


def _weighed(number: int, turn: Turn, given: Any) -> Turn:
    weights, where = given if isinstance(given, list | tuple) else [given] * len(turn.regions), f"turn {number}"
    if len(weights) != len(turn.regions):
        raise Refused("length_mismatch", f"{where} has {len(turn.regions)} regions, and the function gives {len(weights)} weights")
    regions = (
        region if weight is None else replace(region, loss_weight=as_weight(weight, where))
        for region, weight in zip(turn.regions, weights, strict=True)
    )
    return replace(turn, regions=tuple(regions))


# Rows → examples. Every field of a row is accounted for: read by its schema, passed over by its name, listed under `ignore`, or a reason to stop.

Verdict = Literal["used", "passed over", "decisive", "chosen by", "unknown"]
"""What its name says of a field. One that rows are chosen by may stay unread; one that is decisive as well only where it says 1 or true, as a row without it
does: a condition on a system prompt or a weight carries neither."""
_SHOWN = 80
"""Characters of an example value."""
MOST_COLUMNS = 1024
"""Sets of columns that a reader remembers."""


@dataclass(slots=True)
class Account:
    """What became of the fields that a schema did not read.

    Attributes:
        ignore: paths that the configuration lists: a schema never sees these fields.
        used: paths that decide elsewhere which rows are read.
        counts: path → rows in which it held something and was passed over.
        unknown: path → rows in which it held something that no option accounts for.
        examples: a value of each of these.
    """

    ignore: Sequence[str] = ()
    used: Sequence[str] = ()
    counts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Any] = field(default_factory=dict)
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _ignored_keys: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.ignore:
            holder, _, key = path.rpartition(".")
            self._ignored_keys.setdefault(holder, []).append(key)

    def view(self, row: Row) -> View:
        """What a schema sees of a row."""
        return view_of(row, self._ignored_keys)

    def note(self, dropped: Iterable[str], left: Iterable[tuple[str, Any]]) -> None:
        """Account for a row that was converted, by the paths that were left out of it and by its unread fields.

        Raises:
            Refused: it has a decisive field that the schema does not read.
        """
        judged = [(path, value, self.verdict(path)) for path, value in dict(left).items()]
        for path, value, verdict in judged:  # before anything is counted: of a row that is refused nothing is
            if verdict == "decisive" or (verdict == "chosen by" and value != 1):
                raise Refused(
                    "unsupported_media" if path.rpartition(".")[2] in MEDIA else "unsupported_column",
                    f"the record has {path!r}, which this schema does not read: {shown(value)}. Where it means nothing here, list it under "
                    "`ignore`",
                    stage="schema",
                )
        for path, value, verdict in judged:
            if verdict == "passed over":
                self.counts[path] += 1
            elif verdict == "unknown":
                self.unknown[path] += 1
                self.examples.setdefault(path, value)
        self.counts.update(dropped)

    def skim(self, row: Row, read: Set[str]) -> None:
        """Account for a row from which these fields were read; see `note`."""
        if len(row) > len(read):
            self.note((), ((key, value) for key, value in row.items() if key not in read and has_content(value)))

    def check(self, where: str, remedy: Callable[[Account], str] | None = None) -> None:
        """Stop at a field that is neither read nor listed as ignored.

        Args:
            remedy: what to do if nothing is lost without them; without it, the line to write in the domain.

        Raises:
            ConfigError: names the fields, how many rows have them, an example of each, and what to write.
        """
        if not self.unknown:
            return
        fields = "\n".join(
            f"  {path!r} in {count:,} {'row' if count == 1 else 'rows'}, e.g. {shown(self.examples[path])}"
            for path, count in sorted(self.unknown.items())
        )
        ignored = in_one_line([*self.ignore, *sorted(self.unknown)])
        in_the_domain = (
            f"Use a schema or options that read them. If nothing is lost without them, write in the domain:\n  ignore: {ignored}"
        )
        raise ConfigError(
            f"{where} does not read these fields, and their names do not say that they mean nothing:\n{fields}\n"
            + (in_the_domain if remedy is None else remedy(self))
        )

    def verdict(self, path: str) -> Verdict:
        """What its name says of a field."""
        if (known := self._verdicts.get(path)) is not None:
            return known
        name = path.rpartition(".")[2]
        verdict: Verdict = "unknown"
        if path in self.ignore:
            verdict = "passed over"
        elif any(path == used or path.startswith(f"{used}.") for used in self.used):
            verdict = "chosen by" if name in DECISIVE else "used"
        elif name.lower() in NEUTRAL:
            verdict = "passed over"
        elif name in DECISIVE:
            verdict = "decisive"
        self._verdicts[path] = verdict
        return verdict


def in_one_line(value: Any) -> str:
    """A value in YAML's flow style."""
    written: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, allow_unicode=True, sort_keys=False)
    return written.strip()


def shown(value: object) -> str:
    """The beginning of a value, for a person."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Reader:
    """A row function with the account of the fields that it does not read."""

    convert: Convert
    account: Account
    _columns: dict[tuple[str, ...], bool] = field(default_factory=dict)
    """Columns of rows → whether of such rows those with the texts alone are read."""

    def __call__(self, payload: Row) -> Example | None:
        row = self.account.view(payload)
        try:
            if (example := self.convert(row)) is None:
                return None
            _refuse_hidden(example)  # before anything of the row is counted
            example, left = _without_views(example), unread(row)
            if isinstance(self.convert, OwnFunction):
                passed_over = lambda path: self.account.verdict(path) in ("passed over", "used")  # noqa: E731
                left = self.convert.unread(whole(self.account.view(payload)), left, passed_over)
            self.account.note(row.book.dropped, left)
            plain, columns = plain_rows_of(self.convert), tuple(payload)
            if plain is not None and columns not in self._columns and len(self._columns) < MOST_COLUMNS:
                ignored = {*self.account.ignore}
                inside = any("." in path or path in plain.columns for path in ignored)
                self._columns[columns] = not inside and {*columns} - row.left - ignored == plain.columns
            return example
        finally:
            row.book.views.clear()  # a book and its views hold each other, and nobody searches for such garbage while rows are read

    def plain(self, first: Row) -> PlainRows | None:
        """What reads plain rows with the columns of this one; `None` where the schema has to read them, or reads more of them than the texts."""
        columns, plain = tuple(first), plain_rows_of(self.convert)
        if plain is not None and columns not in self._columns:
            self._one(first)
        return plain if self._columns.get(columns) else None

    def rows(self, payloads: Sequence[Row], *, plain: bool = True) -> list[Example | PlainChat | PlainPair | Refused]:
        """What rows are, or why they are refused.

        Args:
            plain: whether those that are nothing but texts are given in columns.
        """
        given: list[Example | PlainChat | PlainPair | Refused | None] = [None] * len(payloads)
        reads = plain_rows_of(self.convert) if plain else None
        for columns, numbers in _rows_alike(payloads).items() if reads is not None else ():
            if columns not in self._columns:
                first = numbers.pop(0)
                given[first] = self._one(payloads[first])
            if reads is None or not self._columns.get(columns):
                continue
            for number, texts in zip(numbers, reads.read([payloads[number] for number in numbers]), strict=True):
                given[number] = texts
                if texts is not None and len(columns) > len(reads.columns):
                    try:
                        self.account.skim(payloads[number], reads.columns)
                    except Refused as refusal:
                        given[number] = refusal
        return [self._one(payload) if example is None else example for payload, example in zip(payloads, given, strict=True)]

    def _one(self, payload: Row) -> Example | Refused:
        try:
            return apply(self, payload)
        except Refused as refusal:
            return refusal


def _rows_alike(rows: Sequence[Row]) -> dict[tuple[str, ...], list[int]]:
    """The numbers of rows by their columns."""
    columns = [tuple(row) for row in rows]
    if columns and columns.count(columns[0]) == len(columns):
        return {columns[0]: list(range(len(rows)))}
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, names in enumerate(columns):
        alike.setdefault(names, []).append(number)
    return alike


def _without_views(example: Example) -> Example:
    """`example` with plain values where a schema passed parts of the row on as they are."""
    plain: dict[str, Any] = {}
    for name in ("tools", "documents", "template_options"):
        if value := getattr(example, name, None):
            plain[name] = whole(value) if isinstance(value, Mapping) else tuple(map(whole, value))
    return replace(example, **plain) if plain else example


def apply(convert: Convert, payload: Row) -> Example:
    """`convert(payload)`, with every way of saying no turned into `Refused` of stage ``schema``.

    A schema sees arbitrary JSON. Whatever else it raises on such a row is about the row, so it is a refusal that shows the exception. A row
    with a decisive field that the schema does not read is refused too, see `Account`.
    """
    reader = convert if isinstance(convert, Reader) else Reader(convert, Account())
    try:
        example = reader(payload)
    except Refused as refusal:
        refusal.stage = refusal.stage or "schema"
        raise
    except PrepAssetsError:
        raise
    except Exception as error:
        raise Refused("schema_error", f"{type(error).__name__}: {error}", stage="schema") from error
    if example is None:
        raise Refused("skipped_by_schema", "the schema returned None", stage="schema")
    return example


def _refuse_hidden(example: Example) -> None:
    """Refuse what stores cannot keep: white space with a weight of its own beside reasoning or a call (``weighted_space``), and a region that is
    shown and not attended to (``not_attended``), but in a document or a chat: no other store has an attention mask."""
    if isinstance(example, Contrast):
        return
    has_mask = isinstance(example, Sample) and example.label is None
    turns = [*example.turns] if isinstance(example, Sample) else [*example.prompt]
    if isinstance(example, Pair):
        turns += [*example.chosen, *example.rejected]
    elif isinstance(example, Group):
        turns += chain.from_iterable(example.responses)
    for turn in turns:
        _refuse_weighted_space(turn)
        for region in turn.regions:
            if not has_mask and not region.attend and not region.drop:
                detail = f"region {region.kind!r} in a turn of role {turn.role} is not attended to; only tokens of documents and chats have an attention mask. "
                raise Refused("not_attended", detail + "Drop it (semantic_drop_mask), or attend to it", stage="schema")


def _refuse_weighted_space(turn: Turn) -> None:
    """In a render nothing tells white space beside reasoning or a tool call from the template's own, so a weight or an attention of its own would be lost."""
    for left, right in pairwise(turn.regions):
        for space, other in ((left, right), (right, left)):
            stands_beside = space.kind == TEXT and space.text.isspace() and other.kind in (THINKING, TOOL_CALL)
            if stands_beside and (space.loss_weight, space.attend) != (other.loss_weight, other.attend):
                weights = [f"{each.loss_weight}{'' if each.attend else ' and no attention'}" for each in (space, other)]
                raise Refused(
                    "weighted_space",
                    f"a turn of role {turn.role} has white space of weight {weights[0]} beside a region {other.kind!r} of weight {weights[1]}. "
                    "Give both one weight, or leave the white space out",
                    stage="schema",
                )
