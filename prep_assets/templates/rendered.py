"""What rendering gives: the text of a conversation, and where in it regions and stops stand."""

from __future__ import annotations

from dataclasses import dataclass

from prep_assets.samples import Region


@dataclass(frozen=True, slots=True)
class Span:
    """Where one region stands in the rendered text.

    Attributes:
        start, end: characters of `Rendered.text`, end exclusive.
        turn: index of its turn.
        role: role of its turn.
        region: the region itself.
        lead, trail: how many characters at its beginning and at its end are the template's: the space before an answer, tags of reasoning.
    """

    start: int
    end: int
    turn: int
    role: str
    region: Region
    lead: int = 0
    trail: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the control tokens stand that end one turn: characters (start, end) of `Rendered.text`."""

    turn: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered sample.

    Attributes:
        text: the whole conversation.
        spans: where each region stands, ascending, none overlapping.
        content: characters (start, end) that come from the source, ascending. All others are the template's own: only there can a control
            token's text mean the control token.
        stops: what ends each turn, ascending; a turn may have none.
        images: characters (start, end) of each image's placeholder and its region, ascending. They are no content.
    """

    text: str
    spans: tuple[Span, ...]
    content: tuple[tuple[int, int], ...]
    stops: tuple[Stop, ...] = ()
    images: tuple[tuple[int, int, Region], ...] = ()
