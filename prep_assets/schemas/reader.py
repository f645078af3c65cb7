"""Rows → examples, with speaker names and mask builders of the user's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import yaml

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import ConfigError, PrepAssetsError, Refused
from prep_assets.samples import TEXT, THINKING, TOOL, Contrast, Example, Group, Pair, PlainChat, PlainPair, Region, Sample, Turn, over_turns
from prep_assets.schemas.fields import (
    DECISIVE,
    MEDIA,
    NEUTRAL,
    View,
    as_weight,
    has_content,
    join,
    refuse_weighted_space,
    unread,
    view_of,
    whole,
)
from prep_assets.schemas.plain_rows import PlainRows, plain_rows_of, reads_plain
from prep_assets.schemas.registry import Convert, OwnFunction, own_function

# Names of speakers where the chat template shows none: left out and counted, or written in front of what is said.


def without_speakers(mode: Literal["leave_out", "write"], convert: Convert) -> Convert:
    """The row function `convert`, in whose examples no turn but a tool's has a name. Where names are left out, their fields count as passed over."""

    def unnamed(row: Mapping[str, Any]) -> Example | None:
        example, names = convert(row), set[str]()

        def change(turns: Sequence[Turn]) -> tuple[Turn, ...]:
            names.update(turn.name for turn in turns if _speaks(turn) and turn.name)
            return tuple(_changed(turn, mode) if _speaks(turn) else turn for turn in turns)

        if example is None or (isinstance(example, Sample) and example.tokenized is not None):
            return example
        example = over_turns(example, change)
        if mode == "leave_out" and isinstance(row, View):
            row.book.dropped.update(join(view.path, "name") for view in row.book.views if dict.get(view, "name") in names)
        return example

    plain = plain_rows_of(convert)  # whose messages have no names
    return unnamed if plain is None else reads_plain(unnamed, plain)


def _speaks(turn: Turn) -> bool:
    return turn.role != TOOL and turn.name is not None


def _changed(turn: Turn, mode: str) -> Turn:
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

    def weighed(row: Mapping[str, Any]) -> Example | None:
        sample = convert(row)
        if not isinstance(sample, Sample):
            return sample
        if sample.tokenized is not None:
            raise Refused("token_ids", f"the record brings token ids with their own weights; {path!r} weighs turns")
        weights = function(sample)
        if len(weights) != len(sample.turns):
            raise Refused("length_mismatch", f"{path!r} gives {len(weights)} weights for {len(sample.turns)} turns")
        turns = (_weighed(turn, found, f"turn {at}") for at, (turn, found) in enumerate(zip(sample.turns, weights, strict=True)))
        return replace(sample, turns=tuple(turns))

    return weighed


def _weighed(turn: Turn, found: Any, where: str) -> Turn:
    weights = found if isinstance(found, list | tuple) else [found] * len(turn.regions)
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
    _known: dict[str, Verdict] = field(default_factory=dict)
    _ignored_keys: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.ignore:
            holder, _, key = path.rpartition(".")
            self._ignored_keys.setdefault(holder, []).append(key)

    def view(self, row: Mapping[str, Any]) -> View:
        """What a schema sees of a row."""
        return view_of(row, self._ignored_keys)

    def plain(self, row: Mapping[str, Any]) -> Any:
        """What a schema sees of a row, without a view."""
        return whole(self.view(row))

    def is_passed_over(self, path: str) -> bool:
        """Whether a field is passed over whatever it holds."""
        return (self._known.get(path) or self._judge(path)) in ("passed over", "used")

    def settle(self, row: View) -> None:
        """Account for a row that its schema has converted.

        Raises:
            Refused: it has a decisive field that the schema does not read.
        """
        self.note(row.book.dropped, unread(row))

    def note(self, dropped: Iterable[str], left: Iterable[tuple[str, Any]]) -> None:
        """Account for a row by the paths that were left out of it, and by its unread fields; see `settle`."""
        self._note(left)
        self.counts.update(dropped)

    def skim(self, row: Mapping[str, Any], read: Set[str]) -> None:
        """Account for a row from which these fields were read; see `settle`."""
        if len(row) > len(read):
            self._note((key, value) for key, value in row.items() if key not in read and has_content(value))

    def _note(self, left: Iterable[tuple[str, Any]]) -> None:
        judged = [(path, value, self._known.get(path) or self._judge(path)) for path, value in dict(left).items()]
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

    def check(self, where: str, remedy: Callable[[Account], str] | None = None) -> None:
        """Stop at a field that is neither read nor listed as ignored.

        Args:
            remedy: what to do if nothing is lost without them; without it, the line to write in the domain.

        Raises:
            ConfigError: names the fields, how many rows have them, an example of each, and what to write.
        """
        if self.unknown:
            fields = "\n".join(
                f"  {path!r} in {count:,} {'row' if count == 1 else 'rows'}, e.g. {shown(self.examples[path])}"
                for path, count in sorted(self.unknown.items())
            )
            raise ConfigError(
                f"{where} does not read these fields, and their names do not say that they mean nothing:\n{fields}\n"
                + (remedy or _in_the_domain)(self)
            )

    def to_ignore(self) -> str:
        """What to write after ``ignore:``, in YAML: what is listed there already, and what is unknown."""
        return in_one_line([*self.ignore, *sorted(self.unknown)])

    def _judge(self, path: str) -> Verdict:
        name = path.rpartition(".")[2]
        verdict: Verdict = "unknown"
        if path in self.ignore:
            verdict = "passed over"
        elif any(_covers(each, path) for each in self.used):
            verdict = "chosen by" if name in DECISIVE else "used"
        elif name.lower() in NEUTRAL:
            verdict = "passed over"
        elif name in DECISIVE:
            verdict = "decisive"
        self._known[path] = verdict
        return verdict


def _in_the_domain(account: Account) -> str:
    return f"Use a schema or options that read them. If nothing is lost without them, write in the domain:\n  ignore: {account.to_ignore()}"


def in_one_line(value: Any) -> str:
    """A value in YAML's flow style."""
    written: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, allow_unicode=True, sort_keys=False)
    return written.strip()


def shown(value: object) -> str:
    """The beginning of a value, for a person."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _covers(listed: str, path: str) -> bool:
    return path == listed or path.startswith(f"{listed}.")


@dataclass(frozen=True, slots=True)
class Reader:
    """A row function with the account of the fields that it does not read."""

    convert: Convert
    account: Account
    _columns: dict[tuple[str, ...], bool] = field(default_factory=dict)

    def __call__(self, payload: Mapping[str, Any]) -> Example | None:
        row = self.account.view(payload)
        try:
            return self._read(payload, row)
        finally:
            row.book.views.clear()  # a book and its views hold each other, and nobody searches for such garbage while rows are read

    def _read(self, payload: Mapping[str, Any], row: View) -> Example | None:
        example = self.convert(row)
        if example is not None:
            _refuse_hidden(example)  # before anything of the row is counted
            example = _without_views(example)
            if isinstance(self.convert, OwnFunction):
                left = self.convert.unread(self.account.plain(payload), unread(row), self.account.is_passed_over)
                self.account.note(row.book.dropped, left)
            else:
                self.account.settle(row)
            self._note(payload, row)
        return example

    def _note(self, payload: Mapping[str, Any], row: View) -> None:
        """Note whether, of rows with these columns, those with the texts alone are read."""
        plain, columns = plain_rows_of(self.convert), tuple(payload)
        if plain is not None and columns not in self._columns and len(self._columns) < MOST_COLUMNS:
            ignored = {*self.account.ignore}
            inside = any("." in path or path in plain.columns for path in ignored)
            self._columns[columns] = not inside and {*columns} - row.left - ignored == plain.columns

    def plain(self, first: Mapping[str, Any]) -> PlainRows | None:
        """What reads plain rows with the columns of this one; `None` where the schema has to read them, or reads more of them than the texts."""
        columns, reads = tuple(first), plain_rows_of(self.convert)
        if reads is not None and columns not in self._columns:
            self._one(first)
        return reads if self._columns.get(columns) else None

    def rows(self, payloads: Sequence[Mapping[str, Any]], *, plain: bool = True) -> list[Example | PlainChat | PlainPair | Refused]:
        """What rows are, or why they are refused.

        Args:
            plain: whether those that are nothing but texts are given in columns.
        """
        found: list[Example | PlainChat | PlainPair | Refused | None] = [None] * len(payloads)
        reads = plain_rows_of(self.convert) if plain else None
        for columns, numbers in _rows_alike(payloads).items() if reads is not None else ():
            if columns not in self._columns:
                first = numbers.pop(0)
                found[first] = self._one(payloads[first])
            if reads is not None and self._columns.get(columns):
                read = reads.read([payloads[number] for number in numbers])
                for number, each in zip(numbers, read, strict=True):
                    found[number] = each
                    if each is not None and len(columns) > len(reads.columns):
                        found[number] = self._skimmed(payloads[number], each, reads.columns)
        return [self._one(payload) if each is None else each for payload, each in zip(payloads, found, strict=True)]

    def _skimmed(self, payload: Mapping[str, Any], given: PlainChat | PlainPair, read: Set[str]) -> PlainChat | PlainPair | Refused:
        try:
            self.account.skim(payload, read)
        except Refused as refusal:
            return refusal
        return given

    def _one(self, payload: Mapping[str, Any]) -> Example | Refused:
        try:
            return apply(self, payload)
        except Refused as refusal:
            return refusal


def _rows_alike(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, ...], list[int]]:
    """The numbers of rows by their columns."""
    columns = [tuple(row) for row in rows]
    if columns and columns.count(columns[0]) == len(columns):
        return {columns[0]: list(range(len(rows)))}
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, each in enumerate(columns):
        alike.setdefault(each, []).append(number)
    return alike


def _without_views(example: Example) -> Example:
    """`example` with plain values where a schema passed parts of the row on as they are."""
    passed_on = {name: value for name in ("tools", "documents", "template_options") if (value := getattr(example, name, None))}
    plain: dict[str, Any] = {
        name: whole(value) if isinstance(value, Mapping) else tuple(map(whole, value)) for name, value in passed_on.items()
    }
    return replace(example, **plain) if plain else example


def apply(convert: Convert, payload: Mapping[str, Any]) -> Example:
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
    """Refuse (``not_attended``) a region that is shown and not attended to, but in a document or a chat: no other store has an attention mask."""
    if isinstance(example, Contrast):
        return
    has_mask = isinstance(example, Sample) and example.label is None
    parts = [*example.turns] if isinstance(example, Sample) else [*example.prompt]
    if isinstance(example, Pair):
        parts += [*example.chosen, *example.rejected]
    elif isinstance(example, Group):
        parts += [turn for response in example.responses for turn in response]
    for turn in parts:
        refuse_weighted_space(turn)
        for region in turn.regions:
            if not has_mask and not region.attend and not region.drop:
                detail = f"region {region.kind!r} in a turn of role {turn.role} is not attended to; only tokens of documents and chats have an attention mask. "
                raise Refused("not_attended", detail + "Drop it (semantic_drop_mask), or attend to it", stage="schema")
