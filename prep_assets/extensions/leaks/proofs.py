"""Held-out texts, and what the rules that look for them must find in training texts, written by the rules and not by their code.

What quality steps must find stands beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

from prep_assets.extensions.quality.proofs.known_verdicts import SENTENCES

QUESTION, ANSWER = " ".join(SENTENCES[:2]), " ".join((SENTENCES[7], SENTENCES[2]))
"""A held-out example: 28 and 26 words."""
OTHER = " ".join(SENTENCES[6:7] * 2)
"""Another held-out text."""
_HELD = f"{SENTENCES[8]}\n{QUESTION}\n\n{ANSWER}\n{SENTENCES[9]}"
_WHOLE = f"{SENTENCES[8]} {QUESTION} {ANSWER} {SENTENCES[9]}"
QUOTED = "\n".join(f"> {line}" for line in wrap(_WHOLE, 40))
QUOTED_WORDS = _WHOLE.casefold().replace(",", "").replace(".", "").split()
TRAINING = (
    " ".join(SENTENCES[4:7]),
    _HELD,
    _HELD.swapcase(),
    " ".join(SENTENCES[4:6] + SENTENCES[:1]),
    QUOTED,
    " ".join((*ANSWER.split()[-7:], *OTHER.split()[:7])),
    " ".join(SENTENCES[4:6] + SENTENCES[1:2]),
)
"""Texts that hold nothing; all of it; all in other case; 12 words of the question; all, wrapped and quoted; the end of the answer with the beginning of the
other text, which no held-out text has together; 16 words of the question."""
PASSAGES = {4: 8, 8: 8, 10: 10, 13: 13, 90: 13}
"""Words of each held-out text → words of a passage of the rule gpt3: the 5th percentile, at least 8 and at most 13."""
PROBED = tuple(" ".join(f"probe{length}a{number}" for number in range(length)) for length in (12, 13, 50, 51, 20))
"""Held-out texts of so many words, of which the last one is not searched for."""
RECALL: Mapping[str, list[int]] = {
    **{disguise: [4, 5] for disguise in ("verbatim", "other case", "wrapped", "split over turns")},
    "under 13 words": [4, 4],
    "13 to 50": [8, 12],
    "over 50": [4, 4],
}
"""By disguise and by length: how many of the probes of `PROBED` are found, and how many there are."""
LEAKS: Mapping[str, Mapping[int, int]] = {
    "gpt3": {1: 54, 2: 54, 4: 54, 6: 16},
    "open_r1": {1: 28, 2: 28, 3: 12, 4: 28, 6: 16},
    "open_instruct": {1: 28, 2: 28, 4: 28, 6: 16},
    "dolma": {1: 2},
    "answers": {1: 26, 2: 26, 4: 26},
}
"""By name of the rule: index of a training text into which the example leaks → shared units."""
