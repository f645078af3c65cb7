"""Every field of a row is accounted for: read by its schema, passed over by its name, listed under `ignore`, or a reason to stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from prep_assets.errors import ConfigError, Refused
from prep_assets.schemas.field_names import DECISIVE, MEDIA, NEUTRAL
from prep_assets.schemas.view import View, has_content, unread, view_of, whole

Verdict = Literal["used", "passed over", "decisive", "unknown"]
_SHOWN = 80
"""Characters of an example value."""


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
        """Account for a row by the paths that were left out of it, and by the fields of it that nobody read; see `settle`."""
        self._note(left)
        self.counts.update(dropped)

    def skim(self, row: Mapping[str, Any], read: Set[str]) -> None:
        """Account for a row of which these fields were read; see `settle`."""
        if len(row) > len(read):
            self._note((key, value) for key, value in row.items() if key not in read and has_content(value))

    def _note(self, left: Iterable[tuple[str, Any]]) -> None:
        judged = [(path, value, self._known.get(path) or self._judge(path)) for path, value in dict(left).items()]
        for path, value, verdict in judged:  # before anything is counted: of a row that is refused nothing is
            if verdict == "decisive":
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
                f"  {path!r} in {count:,} rows, e.g. {shown(self.examples[path])}" for path, count in sorted(self.unknown.items())
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
            verdict = "used"
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
