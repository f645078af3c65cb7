"""What a token of a long chat costs: chats of 200 turns against chats of 2 turns with as many tokens in all, rendered and tokenized.

    python benchmarks/long_chats.py --tokenizer configs/tokenizer

Prints the ratio of the cost per token, three times in turn, for a plain chat and, where the template renders it, for one with reasoning.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from prep_assets.samples import ASSISTANT, TEXT, THINKING, USER, Region, Sample, Turn, turn
from prep_assets.templates.chat_template import ChatTemplate, load_template
from prep_assets.templates.rendering import render
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.engines import choose_engine
from prep_assets.tokenization.policy import MaskPolicy
from prep_assets.tokenization.vocabulary import load_vocabulary

QUESTION = "How many apples are left when I take three of the twelve that lie on the table in the kitchen?"
ANSWER = "Twelve less three is nine, so nine apples are left on the table, and three are in your hands."


def chat(rounds: int, reasoning: bool) -> Sample:
    """A chat of so many rounds."""
    thought = (Region(THINKING, "Twelve less three."),) if reasoning else ()
    turns = [(turn(USER, QUESTION), Turn(ASSISTANT, (*thought, Region(TEXT, ANSWER)))) for _ in range(rounds)]
    return Sample(tuple(each for pair in turns for each in pair))


def cost(samples: list[Sample], template: ChatTemplate, encoder: Encoder) -> float:
    """Seconds per token."""
    start = time.perf_counter()
    encoded = encoder.encode([render(sample, template) for sample in samples])
    return (time.perf_counter() - start) / len(encoded.ids)


def main() -> None:
    """Measure the templates in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True)
    vocabulary = load_vocabulary(str(Path(parser.parse_args().tokenizer).resolve()))
    encoder = Encoder(vocabulary, choose_engine(vocabulary), MaskPolicy())
    for name, reasoning in (("plain", False), ("chatml", False), ("qwen", False), ("qwen3", False), ("qwen3", True)):
        template = load_template(name, vocabulary)
        ratios = []
        for _ in range(3):
            short = cost([chat(1, reasoning)] * 2000, template, encoder)
            ratios.append(cost([chat(100, reasoning)] * 20, template, encoder) / short)
        print(
            f"{name}{' with reasoning' if reasoning else ''}: 200 turns / 2 turns, cost per token: {', '.join(f'{ratio:.2f}x' for ratio in ratios)}"
        )


if __name__ == "__main__":
    main()
