"""Examples in other languages than those to keep."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from prep_assets.errors import ConfigError
from prep_assets.extensions.quality.language import LONGEST, identifier
from prep_assets.extensions.quality.steps import Examples, Judged, Step, by_block, quality_step
from prep_assets.samples import document


@quality_step(
    "language",
    source="py3langid (langid.py of Lui and Baldwin, 2012): naive Bayes over byte n-grams, 97 languages",
    corrupted=((document("Der alte Müller ging jeden Morgen über die Brücke in das Dorf, um dort frisches Brot zu kaufen."),), "language"),
    libraries=("py3langid",),
)
def language(*, keep: list[str], at_least: Annotated[float, Field(ge=0, le=1)] = 0.0, among: list[str] | None = None) -> Step:
    """Examples in another language than those to keep, or in one of them with too low a probability.

    Args:
        keep: ISO 639-1 codes.
        at_least: lowest probability that the library must give to its choice.
        among: codes of the languages that it may choose from, which makes short texts surer; null: all that it knows.
    """
    guesser = identifier(None if among is None else tuple(among))
    if unknown := sorted({*keep} - {*guesser.library.nb_classes}):
        why = "py3langid does not know" if among is None else "`among` leaves out, so none would be kept. Add it there; it has"
        raise ConfigError(f"quality step 'language': keep has {', '.join(unknown)}, which {why}: {', '.join(guesser.library.nb_classes)}")

    def judge(examples: Examples) -> Judged:
        guesses = guesser.classify([text[:LONGEST] for text in examples.said])
        found = {
            number: ("language", f"{code} with a probability of {score:.2f}; kept are {', '.join(keep)} from {at_least}")
            for number, (code, score) in enumerate(guesses)
            if code not in keep or score < at_least
        }
        return Judged(found, {"language": [code for code, _ in guesses], "probability": [round(score, 4) for _, score in guesses]})

    return by_block(judge)
