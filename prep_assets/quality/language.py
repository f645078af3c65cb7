"""The language of each example, by py3langid."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError
from prep_assets.quality.steps import Examples, Judged, Step, by_block, quality_step
from prep_assets.samples import document

LONGEST = 2000
"""Characters of an example that are looked at, from its start."""


@bounded_cache("identifiers of languages", 4)
def _identifier(among: tuple[str, ...] | None) -> Any:
    """The library with its model, which takes a third of a second to load."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    if unknown := sorted({*(among or ())} - {*identifier.labels}):
        raise ConfigError(
            f"quality step 'language': {', '.join(unknown)} is no language that py3langid knows: {', '.join(identifier.labels)}"
        )
    identifier.set_languages(among)
    return identifier


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
    if among is not None and (missing := sorted({*keep} - {*among})):
        raise ConfigError(
            f"quality step 'language': keep has {', '.join(missing)}, which `among` leaves out, so none would be kept. Add it there"
        )
    identifier = _identifier(None if among is None else tuple(among))
    if unknown := sorted({*keep} - {*identifier.labels}):
        raise ConfigError(
            f"quality step 'language': keep has {', '.join(unknown)}, which py3langid does not know: {', '.join(identifier.labels)}"
        )

    def judge(examples: Examples) -> Judged:
        guesses = [identifier.classify(text[:LONGEST]) for text in examples.texts]
        found = {
            number: ("language", f"{code} with a probability of {score:.2f}; kept are {', '.join(keep)} from {at_least}")
            for number, (code, score) in enumerate(guesses)
            if code not in keep or score < at_least
        }
        return Judged(found, {"language": [code for code, _ in guesses], "probability": [round(float(score), 4) for _, score in guesses]})

    return by_block(judge)
