"""Loss weights of tokens: each takes the weight under its bytes. A token that lies across a border that matters makes its example refused."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prep_assets.errors import Refused
from prep_assets.tokenization.cuts import Cuts, Ints
from prep_assets.tokenization.tokens import Tokens, regions

Faults = dict[int, Refused]
"""Number of an example → why it is refused."""
CANNOT_REPRESENT = "the tokenizer cannot represent some character of this text: its tokens do not decode to it"


def weigh(cuts: Cuts, tokens: Tokens, offsets: Ints) -> tuple[npt.NDArray[np.float32], Faults]:
    """Weight of every token, float32[t], and the examples in which a token lies across a border that matters."""
    total = len(tokens.ids)
    if tokens.is_exact and total:
        # where tokens stand end to end, few breaks are looked up among many tokens, not the other way round
        at = np.searchsorted(tokens.ends, cuts.breaks.astype(tokens.ends.dtype), "right")  # of one type, else it copies all ends
        amid = (at < total) & (tokens.ends[at - 1] * (at > 0) < cuts.breaks)
        loss = np.repeat(cuts.weights, np.diff(at + amid, append=total))
        across = np.unique(at[amid])
    else:
        low = regions(cuts.breaks, tokens.starts)
        loss = cuts.weights[low]
        across = np.flatnonzero(low != regions(cuts.breaks, np.maximum(tokens.ends - 1, tokens.starts)))
    return loss, _across(cuts, tokens, offsets, loss, across)


def _across(cuts: Cuts, tokens: Tokens, offsets: Ints, loss: npt.NDArray[np.float32], across: Ints) -> Faults:
    """Faults of the tokens that lie across a break. White space that the template writes before an answer, merged with its first word, takes the
    answer's weight: the model has to produce this token."""
    faults: Faults = {}
    for token in across.tolist():
        start, end = int(tokens.starts[token]), int(tokens.ends[token])
        first, last = regions(cuts.breaks, [start, max(end - 1, start)]).tolist()
        if cuts.weights[first] == cuts.weights[last] and last == first + 1:
            continue
        example = int(np.searchsorted(offsets, token, "right")) - 1
        if cuts.weights[first] == 0 and last == first + 1 and not cuts.between(example, start, int(cuts.breaks[first + 1])).strip():
            loss[token] = cuts.weights[last]
            continue
        text = cuts.between(example, start, end)
        detail = f"token {text!r} lies half inside a trained region; the template needs a control token or a line break there"
        faults.setdefault(example, Refused("mask_border_inside_token", detail, stage="tokenize"))
    return faults


def lossy(cuts: Cuts, tokens: Tokens, unknown: int | None = None) -> Faults:
    """Examples of which the tokenizer has lost or changed a character: their tokens do not add up to their bytes, or, where ids do not stand for
    fixed bytes, one of them is the `unknown` id."""
    if tokens.is_exact or (tokens.by_offsets and unknown is None):
        return {}
    if tokens.by_offsets:
        wrong = np.searchsorted(tokens.per_item, np.flatnonzero(tokens.ids == unknown), "right") - 1
        wrong = wrong[cuts.items[wrong] < 0]
    else:
        ends, last = tokens.ends, tokens.per_item[1:] - 1
        is_empty = np.diff(tokens.per_item) == 0
        wrong = np.flatnonzero(is_empty | (ends[np.maximum(last, 0)] != cuts.item_ends)) if ends.size else np.arange(len(cuts.item_ends))
    examples = np.unique(np.searchsorted(cuts.item_bounds, wrong, "right") - 1)
    return {int(example): Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize") for example in examples}
