"""What must be trained of a sample, worked out from the source and the configuration alone: the other side of the mask proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from prep_assets.samples import COMPLETION, DOCUMENT, PROMPT, THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets.templates.chat_template import ChatTemplate

Piece = tuple[float, str]
"""Loss weight and text of a region, or of what a template writes around a turn."""
_WORDS = "\ue000"
"""Stands for the words of a turn, to see what the template writes around them."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A text that must be trained: neighbouring trained regions, joined.

    Attributes:
        text: what its tokens must decode to, white space at both ends aside, which a template may trim.
        stops: whether a control token that ends the turn must follow and be trained as well.
        weights: the loss weights that its tokens may have.
    """

    text: str
    stops: bool
    weights: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, slots=True)
class MaskOptions:
    """What the configuration wants trained, as the recipe of a token store says it; see `prep_assets.config.models.Sft`."""

    mask: Mapping[str, str]
    mask_default: str = "mask"
    train_on_eos: str = "turn"
    train_turns: str = "all"
    train_thinking: bool = True
    train_tool_calls: bool = True
    train_headers: bool = False


def expected_texts(sample: Sample, options: MaskOptions, template: ChatTemplate) -> tuple[Expected, ...]:
    """The texts that must be trained, in order.

    Turns of a chat are kept apart by what the template writes. Without a template they stand end to end, and the end-of-text token ends each
    completion.
    """
    turns = [[(_weight(turn.role, region, options), region.text) for region in turn.regions if not region.drop] for turn in sample.turns]
    if options.train_turns == "last":
        last = max((i for i, regions in enumerate(turns) if any(weight for weight, _ in regions)), default=-1)
        turns = [regions if i == last else [(0.0, text) for _, text in regions] for i, regions in enumerate(turns)]
    stops = _stop_weights([regions[-1][0] if regions else 0.0 for regions in turns], options.train_on_eos)
    if all(turn.role in (DOCUMENT, PROMPT, COMPLETION) for turn in sample.turns):
        eos = template.special.get("eos_token", "")
        around = [("", "" if turn.role == PROMPT else eos) for turn in sample.turns]
        return _of_text(turns, stops, around, headers=False)
    if options.train_headers:
        return _of_text(turns, stops, _written_around(sample.turns, template), headers=True)
    return tuple(expected for regions, stop in zip(turns, stops, strict=True) for expected in _of_turn(regions, stop))


def _weight(role: str, region: Region, options: MaskOptions) -> float:
    if (region.kind == THINKING and not options.train_thinking) or (region.kind == TOOL_CALL and not options.train_tool_calls):
        return 0.0
    if region.loss_weight is not None:
        return region.loss_weight
    return float(options.mask.get(role, options.mask_default) == "train")


def _stop_weights(weights: Sequence[float], train_on_eos: str) -> list[float]:
    """The loss weight of the token that ends each turn, from that of each turn's last region."""
    if train_on_eos == "all":
        return [weight or 1.0 for weight in weights]
    last = max((i for i, weight in enumerate(weights) if weight), default=-1)
    return [weight if train_on_eos == "turn" or (train_on_eos == "last" and i == last) else 0.0 for i, weight in enumerate(weights)]


def _of_turn(regions: Sequence[Piece], stop: float) -> list[Expected]:
    """The trained texts of one turn of a chat. A stop token may be trained on its own, after a turn that is not."""
    runs = _runs(regions) or [("", ())]
    if stop and not runs[-1][1]:
        runs[-1] = ("", (stop,))
    return [Expected(text, stop > 0 and i == len(runs) - 1, weights) for i, (text, weights) in enumerate(runs) if weights]


def _of_text(
    turns: Sequence[Sequence[Piece]], stops: Sequence[float], around: Sequence[tuple[str, str]], *, headers: bool
) -> tuple[Expected, ...]:
    """The trained texts of a conversation whose every character is known: what stands before and after each turn is in `around`."""
    pieces: list[Piece] = []
    for regions, stop, (before, after) in zip(turns, stops, around, strict=True):
        header = regions[0][0] if headers and regions else 0.0
        pieces += [(header, before), *regions, (stop, after)]
    return tuple(Expected(text, False, weights) for text, weights in _runs(pieces) if weights)


def _written_around(turns: Sequence[Turn], template: ChatTemplate) -> list[tuple[str, str]]:
    """What the template writes before each turn, from the stop token of the one before on, and the stop token after it."""
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    found, so_far, space = [], "", ""
    for i, message in enumerate(messages):
        marked = template.render([*messages[:i], {**message, "content": _WORDS}])
        header, _, rest = marked[len(so_far) :].rpartition(_WORDS)
        found.append((space + header, rest.rstrip()))
        so_far, space = template.render(messages[: i + 1]), rest[len(rest.rstrip()) :]
    return found


def _runs(pieces: Sequence[Piece]) -> list[tuple[str, tuple[float, ...]]]:
    """Text and weights of each run of trained pieces in a row; no text and no weights for each run of others."""
    runs = []
    for trained, group in groupby([piece for piece in pieces if piece[1]], key=lambda piece: piece[0] > 0):
        run = list(group)
        runs.append(("".join(text for _, text in run), tuple(sorted({weight for weight, _ in run}))) if trained else ("", ()))
    return runs
