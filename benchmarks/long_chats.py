"""What a token of a long chat costs: chats of 50 and 200 turns against chats of 2 turns with as many tokens in all.

    python benchmarks/long_chats.py --tokenizer configs/tokenizer

A chat is rendered, what must be trained of it is derived from its source, as for every record of a build, and it is tokenized. Prints the
ratios of the cost per token, three times in turn: for a plain chat, for one with reasoning and for one with tool calls.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from prep_assets.config.mask import MaskPolicy
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.samples import ASSISTANT, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import load_vocabulary

QUESTION = "How many apples are left when I take three of the twelve that lie on the table in the kitchen?"
ANSWER = "Twelve less three is nine, so nine apples are left on the table, and three are in your hands."
CALL = '{"name": "subtract", "arguments": {"from": "twelve apples on the table", "number": "three apples"}}'
KINDS = ("plain", "reasoning", "tool calls")
CASES = (("plain", KINDS[:1]), ("chatml", KINDS[:1]), ("qwen", KINDS[::2]), ("qwen3", KINDS), ("mistral", KINDS[::2]))


def chat(turns: int, kind: str) -> Sample:
    """A chat of so many turns."""
    if kind == "tool calls":
        rounds: tuple[Turn, ...] = (
            turn(USER, QUESTION),
            Turn(ASSISTANT, (Region(TOOL_CALL, CALL),)),
            turn(TOOL, "nine apples"),
            turn(ASSISTANT, ANSWER),
        )
    else:
        thought = (Region(THINKING, "Twelve less three."),) if kind == "reasoning" else ()
        rounds = (turn(USER, QUESTION), Turn(ASSISTANT, (*thought, Region(TEXT, ANSWER))))
    return Sample((rounds * turns)[:turns])


def cost(samples: list[Sample], template: ChatTemplate, encoder: Encoder) -> float:
    """Seconds of processor time per token."""
    start = time.process_time()
    rendered = []
    for sample in samples:
        rendered.append(render(sample, template))
        derive(sample, MaskOptions(), template)
    return (time.process_time() - start) / len(encoder.encode(rendered).ids)


def main() -> None:
    """Measure the templates in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--turns", type=int, default=2000, help="turns of all chats of one length together")
    arguments = parser.parse_args()
    vocabulary = load_vocabulary(str(Path(arguments.tokenizer).resolve()))
    encoder = Encoder(vocabulary, choose_engine(vocabulary), MaskPolicy())
    for name, kinds in CASES:
        template = load_template(name, vocabulary)
        for kind in kinds:
            costs = [
                [cost([chat(turns, kind)] * (arguments.turns // turns), template, encoder) for turns in (2, 50, 200)] for _ in range(3)
            ]
            ratios = (", ".join(f"{each[i] / each[0]:.2f}x" for each in costs) for i in (1, 2))
            print(f"{name}, {kind}: cost per token, 50 turns / 2 turns: {next(ratios)}; 200 turns / 2 turns: {next(ratios)}")


if __name__ == "__main__":
    main()
