"""A schema: `{"term": "loss mask", "meaning": "which tokens are trained"}`."""

from prep_assets.samples import ASSISTANT, USER, Sample, turn
from prep_assets.schemas.fields import text_of
from prep_assets.schemas.registry import Convert, schema


@schema("term", gives=Sample, example={"term": "loss mask", "meaning": "which tokens are trained"})
def term(*, question: str = "What is meant by {}?") -> Convert:
    """A term and its meaning, as a question and its answer."""
    return lambda row: Sample((turn(USER, question.format(text_of(row, "term"))), turn(ASSISTANT, text_of(row, "meaning"))))
