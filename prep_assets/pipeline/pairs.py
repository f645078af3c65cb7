"""RL prompts and preference pairs as tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.config.models import Preference, Rl
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import Refused
from prep_assets.pipeline.asset import REASONING, TEMPLATE
from prep_assets.pipeline.conversations import Proven, in_order, plain_chats_of
from prep_assets.pipeline.images import refuse_images
from prep_assets.pipeline.lines import RowForm, extra_columns, pair_sample, plain_sides, sample_of, says_something, turns_of, written
from prep_assets.pipeline.sources import inline_reasoning, reasoning_recipe
from prep_assets.pipeline.tokens import Batch, Streams, add, encode_lines, ids_dtype, tokenizer_recipe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.derive import MaskOptions
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, USER, Prompt, Turn
from prep_assets.schemas.rewards import gold_as_json_number
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Draft
from prep_assets.stores.tokens import RecordWriter, record_writer
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.render import InlineReasoning, render
from prep_assets.text.spans import MaskPolicy, Rendered
from prep_assets.text.template import ChatTemplate

# RL prompts: as lines with their gold answer, and as tokens up to where a model continues.


def prompt_of(example: object) -> Prompt:
    """A prompt without images; anything else is refused."""
    if not isinstance(example, Prompt):
        raise Refused("not_a_prompt", f"the schema gives {type(example).__name__}, RL needs a Prompt", stage="prompt")
    refuse_images(example.prompt, "prompt")
    return example


def prompt_row(example: Prompt, form: RowForm) -> dict[str, Any]:
    """``{prompt, gold}``: the gold of a number verifier as a JSON number, as train-llm-from-scratch writes it; of another one as text, with
    the verifier's name.

    Raises:
        Refused: an empty prompt, or one that the form cannot hold.
    """
    columns = extra_columns(example)
    prompt = written(example.prompt, form, columns, "prompt")
    if not says_something(prompt):
        raise Refused("empty_prompt", "the prompt is empty", stage="prompt")
    if example.verifier == "number":
        return {"prompt": prompt, "gold": gold_as_json_number(example.gold), **columns}
    return {"prompt": prompt, "gold": example.gold, "verifier": example.verifier, **columns}


def prompt_digest(turns: tuple[Turn, ...]) -> bytes:
    """What decides whether a prompt is held out, whatever the form of the file: of pairs, of RL, and of groups."""
    return chat_digest([turn.role for turn in turns], [turn.text for turn in turns])


def chat_digest(roles: Sequence[str], texts: Sequence[str]) -> bytes:
    """The same of a prompt in columns."""
    alone = len(roles) == 1 and roles[0] in (USER, ASSISTANT, PROMPT, COMPLETION)  # which a string may be
    plain = texts[0] if alone else [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    return xxhash.xxh3_128_digest(msgspec.json.encode(plain))


def prompt_encoder(workspace: Workspace) -> Encoder:
    """What tokenizes prompts: nothing of them is trained."""
    family, nothing = workspace.family(Rl), MaskPolicy({}, "mask", "none")
    return Encoder(workspace.vocabulary(family), workspace.engines(family), nothing, family.preprocessing.max_seq_len, trains=False)


def generation_prompt(template: ChatTemplate, reasoning: InlineReasoning, content: dict[str, Any]) -> Rendered:
    """A line of a prompt file, rendered up to where a model continues."""
    sample = sample_of(content, turns_of(content["prompt"], USER))
    return render(reasoning.read(sample), template, generation_prompt=True)


# Lines of prompts → token ids, ended by the template's generation prompt: what a rollout starts from.

OPTIONS = (*TEMPLATE, *REASONING, "preprocessing.max_seq_len", "output.dtype", "output.max_tokens_per_shard")
"""The options that `prompt_tokens_recipe` reads."""


def prompt_tokens_recipe(workspace: Workspace) -> dict[str, Any]:
    """What tokenized prompts depend on, beside the prompts."""
    family = workspace.family(Rl)
    return {
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "output": family.output.model_dump(include={"dtype", "max_tokens_per_shard"}),
    }


def write_prompt_tokens(
    workspace: Workspace, directory: Path, name: str, stream: str, payload: Path, quarantine_path: Path, doing: str
) -> Draft:
    """Tokenize the lines of the file `name` in a folder. The store is always `bin`, as `sft_tokens` is.

    Args:
        doing: what progress is about.
    """
    family = workspace.family(Rl)
    dtypes, shard = {"tokens": ids_dtype(family, workspace.vocabulary(family))}, family.output.max_tokens_per_shard
    with Quarantine(quarantine_path) as quarantine:
        with record_writer("bin", payload, stream, dtypes, max_tokens_per_shard=shard) as writer:
            streams = Streams(payload, {stream: dtypes}, {stream: writer}, quarantine)
            counts = encode_lines(workspace, family, doing, open_lines(directory, name), partial(_encode, name=name), streams)
        refused = quarantine.counts
    return Draft({**counts, "refused": refused}, {}, ("ids inside the vocabulary",))


def _encode(
    workspace: Workspace, batches: Iterator[Batch], writers: Sequence[RecordWriter], quarantine: Quarantine, *, name: str
) -> dict[str, Any]:
    """Tokenize and write prompts; see `EncodeLines`.

    Args:
        name: of their file.
    """
    family, [writer] = workspace.family(Rl), writers
    template, reasoning, encoder = workspace.template(family), inline_reasoning(workspace, family), prompt_encoder(workspace)
    counts = {"read": 0, "kept": 0, "tokens": 0}
    for first, batch in batches:
        rendered, at = [], []
        with quarantine.by_row():
            for row, content in enumerate(batch, first):
                try:
                    rendered.append(generation_prompt(template, reasoning, content))
                    at.append((row, content))
                except Refused as refusal:
                    quarantine.add(f"{name}.jsonl:{row}", refusal.stage, refusal.reason, refusal.detail, content)
            encoded = encoder.encode(rendered)
            for position, why in encoded.refused:
                row, content = at[position]
                quarantine.add(f"{name}.jsonl:{row}", why.stage, why.reason, why.detail, content)
        rows = [at[int(i)][0] for i in encoded.kept]
        writer.append({"tokens": encoded.ids}, np.diff(encoded.offsets), [0] * len(rows), rows)
        add(counts, {"read": len(batch), "kept": len(rows), "tokens": len(encoded.ids)})
    return counts


# Tokenized preference pairs: both sides rendered and encoded, loss on the answer and its stop token only.

SIDES = ("chosen", "rejected")
LAST_ANSWER = MaskPolicy(turns="last")
"""What the weights of a plain side say, which columns leave out: its last turn is trained, an answer, and nothing else."""


def pair_renderer(workspace: Workspace) -> Proven:
    """What renders and tokenizes the sides of pairs."""
    family = workspace.family(Preference)
    limit = family.preprocessing.max_seq_len
    encoder = Encoder(workspace.vocabulary(family), workspace.engines(family), answer_policy(), limit, truncation=family.truncation)
    return Proven(workspace.template(family), encoder)


def answer_policy() -> MaskPolicy:
    """Loss on a region that says so itself, on nothing else: the answers carry weight 1, the prompt weight 0."""
    return MaskPolicy({}, "mask")


class PairEncoder:
    """Tokenizes pairs: those of plain chats by the forms of their conversations, all others rendered one by one."""

    def __init__(self, workspace: Workspace) -> None:
        self._renderer, self._reasoning = pair_renderer(workspace), inline_reasoning(workspace, workspace.family(Preference))
        encoder = self._renderer.encoder
        self._plain = plain_chats_of(
            self._renderer.template,
            replace(encoder, policy=LAST_ANSWER),
            MaskOptions(train_turns="last"),
            (*encoder.vocabulary.control, *self._reasoning.strings),
        )

    def encode(
        self, batch: list[dict[str, Any]], first: int, quarantine: Quarantine, *, name: str = "preferences"
    ) -> tuple[list[int], dict[str, tuple[Any, Any, Any, int]]]:
        """Pairs of which both sides are kept; ids, masks and lengths of each side, and how many tokens truncation took from it.

        Args:
            name: of their file, for quarantine.
        """
        refused: dict[int, Refused] = {}
        encoded, encoder = self._encoded(batch, refused), self._renderer.encoder
        for side, fault in encoded.refused:
            refused.setdefault(side // 2, fault)
        if encoder.truncation != "drop":
            _refuse_equal_tokens(encoded, refused)
        for number, fault in sorted(refused.items()):
            quarantine.add(f"{name}.jsonl:{first + number}", fault.stage, fault.reason, fault.detail, batch[number])
        kept = np.array([side // 2 not in refused for side in encoded.kept.tolist()], bool)
        chosen = {side: _chosen(encoded, kept & (encoded.kept % 2 == number)) for number, side in enumerate(SIDES)}
        return [number for number in range(len(batch)) if number not in refused], chosen

    def _encoded(self, batch: Sequence[Mapping[str, Any]], refused: dict[int, Refused]) -> Encoded:
        """Both sides of each pair that is not refused, one after the other: its number and the next of twice as many."""
        cut = self._plain.cut([side for row in batch for side in plain_sides(row, SIDES)])
        texts = {} if cut is None else {side: cut.laid.render(at).decode() for at, side in enumerate(cut.rows.tolist())}
        renders: dict[int, Rendered] = {}
        for pair, row in enumerate(batch):
            try:
                for number, side in enumerate(SIDES, 2 * pair):
                    if number not in texts:
                        renders[number] = self._rendered(row, side)
                        texts[number] = renders[number].text
                _refuse_equal_texts(texts[2 * pair], texts[2 * pair + 1])
            except Refused as refusal:
                refused[pair] = refusal
        renders = {side: rendered for side, rendered in renders.items() if side // 2 not in refused}
        encoder = self._renderer.encoder
        parts = [] if cut is None else [(cut.rows, encoder.encode_cuts(cut.laid.cuts()))]
        parts.append((np.array(list(renders), np.int64), encoder.encode(list(renders.values()))))
        return in_order(parts, np.array([2 * pair + side for pair in refused for side in (0, 1)], np.int64))

    def _rendered(self, row: Mapping[str, Any], side: str) -> Rendered:
        """A side by its marks, or else by its form, as `PlainChats.render` has it; its regions say what is trained."""
        try:
            return _rendered(row, side, self._renderer, self._reasoning)
        except Refused:
            [plain] = plain_sides(row, [side])
            if plain is None or (found := self._plain.by_form(plain)) is None:
                raise
        turns = pair_sample(row, side).turns
        return replace(found, spans=tuple(replace(span, region=turns[span.turn].regions[0]) for span in found.spans))


def rendered_pair(row: Mapping[str, Any], renderer: Proven, reasoning: InlineReasoning) -> tuple[Rendered, ...]:
    """Both sides of a pair."""
    sides = tuple(_rendered(row, side, renderer, reasoning) for side in SIDES)
    _refuse_equal_texts(*(side.text for side in sides))
    return sides


def _rendered(row: Mapping[str, Any], side: str, renderer: Proven, reasoning: InlineReasoning) -> Rendered:
    return renderer.render(reasoning.read(pair_sample(row, side)))


def _refuse_equal_texts(chosen: str, rejected: str) -> None:
    """A template that trims can make one text of two answers, and such a pair teaches nothing."""
    if chosen == rejected:
        raise Refused("equal_answers", "the chat template renders both answers to the same text", stage="render")


def _refuse_equal_tokens(encoded: Encoded, refused: dict[int, Refused]) -> None:
    """Two answers that differ only after the place where they are cut off teach nothing."""
    borders = encoded.offsets.tolist()
    sides = {side: encoded.ids[start:end] for side, start, end in zip(encoded.kept.tolist(), borders[:-1], borders[1:], strict=True)}
    for pair in sorted({side // 2 for side in sides}):
        chosen, rejected = sides.get(2 * pair), sides.get(2 * pair + 1)
        if chosen is not None and rejected is not None and np.array_equal(chosen, rejected):
            detail = f"both sides have the same {len(chosen):,} tokens where truncation cuts them off"
            refused.setdefault(pair, Refused("equal_after_truncation", detail, stage="tokenize"))


def _chosen(encoded: Encoded, keep: npt.NDArray[np.bool_]) -> tuple[Any, Any, Any, int]:
    lengths = np.diff(encoded.offsets)
    tokens = np.repeat(keep, lengths)
    return encoded.ids[tokens], (encoded.loss[tokens] != 0).astype(np.uint8), lengths[keep], int(encoded.taken[keep].sum())
