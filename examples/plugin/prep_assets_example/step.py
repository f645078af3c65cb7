"""A quality step: it drops examples in capitals."""

from prep_assets.extensions.quality.steps import Examples, Judged, Step, by_block, quality_step
from prep_assets.samples import ASSISTANT, Sample, turn

SHOUTED = Sample((turn(ASSISTANT, "STOP SHOUTING"),))


@quality_step("no_capitals", source="our own", corrupted=([SHOUTED], "capitals"))
def no_capitals(*, most: float = 0.5) -> Step:
    """At most so large a share of the characters is in capitals."""

    def judge(examples: Examples) -> Judged:
        shares = [sum(map(str.isupper, text)) / max(len(text), 1) for text in examples.said]
        return Judged({number: ("capitals", f"{share:.0%} of it") for number, share in enumerate(shares) if share > most})

    return by_block(judge)
