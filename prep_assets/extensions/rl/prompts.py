"""Prompts with their golds, as lines, and as tokens ended by the template's generation prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from prep_assets.config.mask import MaskPolicy
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import Refused
from prep_assets.extensions.lines.tokens import reject_lines
from prep_assets.extensions.lines.write import extra_columns, sample_of, says_something, turns_of, written
from prep_assets.extensions.rl.config import Rl
from prep_assets.extensions.rl.schemas import gold_as_json_number, number_text
from prep_assets.pipeline.asset import Contradiction, Line, LineOf, RowForm
from prep_assets.pipeline.examples import AnyExample, as_example
from prep_assets.pipeline.media import reject_files
from prep_assets.pipeline.sources import inline_reasoning, unrendered_reasoning
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import USER, Prompt
from prep_assets.text.encode import Encoder
from prep_assets.text.render import InlineReasoning, render
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate

# Rows of prompts: ``{prompt, gold}``.


def prompt_of(example: object) -> Prompt:
    """Require a prompt without images; reject anything else."""
    if not isinstance(example, Prompt):
        raise Refused("not_a_prompt", f"the schema gives {type(example).__name__}, RL needs a Prompt", stage="prompt")
    reject_files(example.prompt, "prompt")
    return example


def prompt_row(example: Prompt, form: RowForm) -> dict[str, Any]:
    """``{prompt, gold}``: the gold of a number verifier is a JSON number, as train-llm-from-scratch writes it, and as ``gold_text`` its digits where others
    are shorter, such as 2.50 and 0.00005; of any other verifier it is text, with the verifier's name. What the verifier is told is JSON text, as tools are.

    Raises:
        Refused: the prompt is empty, or does not fit the form.
    """
    columns = extra_columns(example)
    prompt = written(example.prompt, form, columns, "prompt")
    if not says_something(prompt):
        raise Refused("empty_prompt", "the prompt is empty", stage="prompt")
    if example.arguments:
        columns = {"arguments": example.arguments, **columns}
    if example.verifier == "number":
        gold = gold_as_json_number(example.gold)
        spelling = {} if example.gold == number_text(gold) else {"gold_text": example.gold}
        return {"prompt": prompt, "gold": gold, **spelling, **columns}
    return {"prompt": prompt, "gold": example.gold, "verifier": example.verifier, **columns}


def prompt_line(workspace: Workspace) -> LineOf:
    """Lines of prompts with their gold answers."""
    reasoning = unrendered_reasoning(workspace.family(Rl))

    def line(content: AnyExample) -> tuple[AnyExample, Line]:
        prompt = prompt_of(reasoning.read(as_example(content)))
        return prompt, partial(prompt_row, prompt)

    return line


# Prompts that contradict each other.

_VALUE = re.compile(r"[+-]?([0-9]{1,400}|[0-9]{1,3}(,[0-9]{3}){1,99})(\.[0-9]{1,400}|/(?=0*[1-9])[0-9]{1,400})?")


def _gold_value(gold: str | float) -> str:
    """A gold as it is compared: a plain number or fraction by its value, text without case and white space."""
    text = "".join(str(gold).split()).casefold()
    return str(Fraction(text.replace(",", ""))) if _VALUE.fullmatch(text) else text


def _said(row: Mapping[str, Any]) -> str | None:
    return None if row.get("gold", "") == "" else _gold_value(row["gold"])


def _two_golds(row: Mapping[str, Any]) -> Refused:
    detail = (
        f"the gold is {str(row['gold'])[:60]!r}, and another row of this domain has another one for the same prompt. Keep the right one"
    )
    return Refused("contradicting_golds", detail, stage="prompt")


GOLDS = Contradiction(("gold", "gold_text"), _said, _two_golds)
"""No prompt of a domain has two golds."""


# Prompts, ended by the template's generation prompt.


def prompt_encoder(workspace: Workspace) -> Encoder:
    """What tokenizes prompts: nothing of them is trained."""
    family, nothing = workspace.family(Rl), MaskPolicy(mask={}, mask_default="mask", train_on_eos="none")
    return Encoder(workspace.vocabulary(family), workspace.engines(family), nothing, family.preprocessing.max_seq_len, trains=False)


def generation_prompt(template: ChatTemplate, reasoning: InlineReasoning, content: dict[str, Any]) -> Rendered:
    """A line of a prompt file, rendered up to where a model continues."""
    sample = sample_of(content, turns_of(content["prompt"], USER))
    return render(reasoning.read(sample), template, generation_prompt=True)


class PromptEncoder:
    """Tokenizes lines of prompts up to where a model continues: what a rollout starts from."""

    def __init__(self, workspace: Workspace) -> None:
        family = workspace.family(Rl)
        self._template, self._reasoning, self._encoder = (
            workspace.template(family),
            inline_reasoning(workspace, family),
            prompt_encoder(workspace),
        )

    def encode(
        self, batch: Sequence[dict[str, Any]], first: int, quarantine: Quarantine, *, name: str
    ) -> tuple[list[int], list[tuple[Mapping[str, Any], Any, int]]]:
        """See `LineEncoder`."""
        refused: dict[int, Refused] = {}
        at, rendered = list[int](), list[Rendered]()
        for number, content in enumerate(batch):
            try:
                rendered.append(generation_prompt(self._template, self._reasoning, content))
                at.append(number)
            except Refused as refusal:
                refused[number] = refusal
        encoded = self._encoder.encode(rendered)
        reject_lines(batch, first, {**refused, **{at[position]: fault for position, fault in encoded.refused}}, quarantine, name)
        return [at[position] for position in encoded.kept.tolist()], [({"tokens": encoded.ids}, np.diff(encoded.offsets), 0)]

    def rendered(self, line: Mapping[str, Any], stream: str) -> tuple[Encoder, Rendered]:
        """See `LineEncoder`."""
        return self._encoder, generation_prompt(self._template, self._reasoning, dict(line))
