"""Scored groups: texts that are tokenized, and ids that a model sampled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.config.family import StorageFormat
from prep_assets.config.mask import MaskPolicy
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.lines.tokens import answer_policy
from prep_assets.extensions.lines.write import weighted
from prep_assets.extensions.rl.config import Rl, group_domains
from prep_assets.extensions.rl.scored import Scored, group_columns, group_dtypes
from prep_assets.pipeline.asset import Given, Sequences, Shown, Target, holds_out, ids_dtype
from prep_assets.pipeline.examples import Item, Source, asked_digest, held_out, passed_over
from prep_assets.pipeline.media import reject_files
from prep_assets.pipeline.rendering import Proven
from prep_assets.pipeline.sources import inline_reasoning
from prep_assets.pipeline.tokens import add
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import ASSISTANT, COMPLETION, TEXT, THINKING, USER, Group, Region, Sample, Turn, changed
from prep_assets.schemas.registry import schema_named, schemas
from prep_assets.stores.groups import LOGPROBS, OF_RUNS, STEP_ENDS, STEP_REWARDS, TEST, splits
from prep_assets.stores.published import Draft
from prep_assets.stores.table import GROUPS
from prep_assets.stores.version_folders import Published
from prep_assets.stores.writer import TableWriter
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.render import render
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary

# Scored groups → token ids of prompts and responses, masks and rewards.
#
# A response is rendered with its prompt, once, and tokenized once. What of it is the prompt is what the template writes for the prompt alone, up
# to where a model continues; the response is the rest. Where the tokens of the one do not begin with those of the other, the group is refused,
# as it is when any response is: a group is whole, or its rewards say something else.

# Groups whose responses come with the token ids that a model sampled, and often with their log-probabilities.
#
# Decoding a rollout and tokenizing the text again gives other ids now and then: a model may sample ``▁hel`` ``lo`` where its tokenizer writes ``▁hello``.
# Log-probabilities then belong to tokens that are not there, and ratios to a policy that never existed. So ids are stored as they were sampled, all of them
# trained, and how many texts would have been tokenized otherwise is counted.


def further_columns(family: Rl) -> tuple[str, ...]:
    """Which columns of `FURTHER` responses are stored with: log-probabilities where the schema has them, or its option ``logprobs_key`` asks for them;
    rewards of steps where the schema judges steps, or its option ``turn_rewards_key`` asks for those of answers; of which
    run a response is, where it reads runs.

    Raises:
        ConfigError: some domains have them and others do not.
    """
    domains = {name: family.domains[name] for name in group_domains(family)}
    has = {name: found.further if (found := schema_named(domain.schema_name)) else "" for name, domain in domains.items()}
    runs = {name: further == "runs" for name, further in has.items()}
    logprobs = {name: bool(domain.options.get("logprobs_key", runs[name])) for name, domain in domains.items()}
    steps = {name: has[name] == "steps" or bool(domain.options.get("turn_rewards_key")) for name, domain in domains.items()}
    kinds = (
        (logprobs, "no logprobs_key", "log-probabilities"),
        (steps, "no steps", "rewards of steps"),
        (runs, "no runs", "runs of agents"),
    )
    for having, said, what in kinds:
        if len(set(having.values())) > 1:
            lacking = ", ".join(sorted(name for name, has in having.items() if not has))
            raise ConfigError(f"domains {lacking} have {said}, others have: a store of groups has {what} or has none")
    wanted = ((logprobs, (LOGPROBS,)), (steps, (STEP_ENDS, STEP_REWARDS)), (runs, OF_RUNS))
    return tuple(column for having, columns in wanted if any(having.values()) for column in columns)


def scored_as_sampled(
    group: Group, prompt: npt.NDArray[Any] | None, rewards: npt.NDArray[np.float32], vocabulary: Vocabulary, limit: int | None, row: int
) -> Scored:
    """A group with the ids of its source.

    Args:
        prompt: ids of the prompt as the template renders it; `None` where the source has its own.
        limit: most tokens of a prompt with a response.

    Raises:
        Refused: an id outside the vocabulary, ids that are not those of the response's text, or too many of them.
    """
    sampled = group.sampled
    assert sampled is not None
    prompt_ids = _ids(sampled.prompt, vocabulary, "prompt") if sampled.prompt is not None else prompt
    assert prompt_ids is not None
    responses = tuple(_ids(ids, vocabulary, f"response {number}") for number, ids in enumerate(sampled.responses))
    for number, (ids, turns) in enumerate(zip(responses, group.responses, strict=True)):
        if limit is not None and len(prompt_ids) + len(ids) > limit:
            detail = f"response {number}: {len(prompt_ids) + len(ids):,} tokens, max_seq_len is {limit:,}"
            raise Refused("too_long", detail, stage="tokenize")
        if sampled.masks is None:
            _check_text(vocabulary.decode(ids), turns, number)
        else:
            _check_turns(ids, np.array(sampled.masks[number], np.uint8), turns, vocabulary, number)
    masks = tuple(np.array(mask, np.uint8) for mask in sampled.masks or ((1,) * len(ids) for ids in responses))
    logprobs = None if sampled.logprobs is None else tuple(np.array(values, np.float64).astype(np.float32) for values in sampled.logprobs)
    runs = np.array(sampled.runs, np.int32) if sampled.runs else None
    return Scored(prompt_ids, responses, masks, rewards, 0, 0, row, logprobs, _retokenized(responses, vocabulary), runs=runs)


def _ids(ids: Sequence[int], vocabulary: Vocabulary, where: str) -> npt.NDArray[np.uint32]:
    outside = next((number for number in ids if not 0 <= number < vocabulary.size), None)
    if outside is not None:
        raise Refused("id_outside_vocabulary", f"{where}: id {outside}, the vocabulary has {vocabulary.size:,}", stage="tokenize")
    return np.array(ids, np.uint32)


def _check_text(decoded: str, turns: Sequence[Turn], number: int) -> None:
    """The words of the response must stand in what its ids decode to, in their order: ids of another response say something else."""
    at = 0
    for region in (region for turn in turns for region in turn.regions if region.kind == TEXT):
        words = region.text.strip()
        start = decoded.find(words, at)
        if start < 0:
            detail = f"response {number}: its ids decode to {decoded[:80]!r}, its text is {words[:80]!r}"
            raise Refused("ids_differ_from_text", detail, stage="tokenize")
        at = start + len(words)


def _is_answer(turn: Turn) -> bool:
    return turn.role == ASSISTANT and any(region.loss_weight != 0 for region in turn.regions)


_TAG = re.compile("</?[a-z_]+>")


def require_whole(group: Group, renders: Iterable[str], vocabulary: Vocabulary) -> None:
    """Compare what a model was given with what the turns of a group say: the one must hold each text of the others, and no words but these and the template's.

    Args:
        renders: of the conversation of each response, what the template writes.

    Raises:
        Refused: ``ids_differ_from_text``, for a text that is not in the ids; ``lossy_trace``, for words of the ids that no turn says.
    """
    sampled = group.sampled
    assert sampled is not None and sampled.masks is not None and sampled.prompt is not None
    for number, (ids, mask, turns, text) in enumerate(zip(sampled.responses, sampled.masks, group.responses, renders, strict=True)):
        said, marks = [*group.prompt, *turns], np.array([0] * len(sampled.prompt) + [*mask])
        given = " ".join(
            vocabulary.decode(part) for part in np.split(np.array([*sampled.prompt, *ids]), np.flatnonzero(np.diff(marks)) + 1)[::2]
        )
        told = [turn for turn in said if not _is_answer(turn)]
        # a later row of a run, as of a sub-agent, may begin with another prompt than its group
        free = len(group.prompt) if sampled.runs and sampled.runs[number][1] else 0
        left = Counter(_words_beside(given, told, vocabulary, f"response {number}", free))
        left -= Counter(_words_beside(text, said, vocabulary))
        if lost := [word for word in left if not _TAG.fullmatch(word)]:
            detail = (
                f"response {number}: its model was given {' '.join(lost)[:80]!r}, which no message says and the template does not write"
            )
            raise Refused("lossy_trace", detail, stage="tokenize")


def _words_beside(text: str, turns: Sequence[Turn], vocabulary: Vocabulary, where: str = "", free: int = 0) -> list[str]:
    """The words of a text without control tokens and the texts of turns, which stand in it in their order. With `where`, one that does not is rejected, but for
    answers and the first `free` turns."""
    for control in vocabulary.control:
        text = text.replace(control, " ")
    at, beside = 0, list[str]()
    for number, turn in enumerate(turns):
        for words in (region.text.strip() for region in turn.regions if region.kind in (TEXT, THINKING)):
            start = text.find(words, at)
            if start >= 0:
                beside.append(text[at:start])
                at = start + len(words)
            elif where and turn.role != ASSISTANT and number >= free:
                raise Refused(
                    "ids_differ_from_text", f"{where}: its model was not given {words[:80]!r} of the {turn.role}", stage="tokenize"
                )
    return " ".join([*beside, text[at:]]).split()


def _check_turns(ids: npt.NDArray[Any], mask: npt.NDArray[np.uint8], turns: Sequence[Turn], vocabulary: Vocabulary, number: int) -> None:
    """Each stretch of sampled ids must hold the words of one assistant turn, and each stretch between two of them the words of the turns between.

    A mask that is shifted, or of another response, cuts words of the one into the other, or the stop token off an answer.
    """
    said = [(answers, list(run)) for answers, run in groupby(turns, _is_answer)]
    if not said[0][0]:
        said = said[1:]  # what the source gives to a model before its first answer is not compared, as a prompt is not
    borders = np.concatenate([[0], np.flatnonzero(mask[1:] != mask[:-1]) + 1, [len(mask)]]).tolist()
    controls = {*vocabulary.control.values()}
    for start in borders[1:-1]:
        if not mask[start] and ids[start] in controls and ids[start - 1] not in controls:
            stop = vocabulary.decode(ids[start : start + 1])
            detail = f"response {number}: an answer ends before {stop!r} at token {start}, which the mask says was not sampled"
            raise Refused("stop_not_sampled", detail, stage="tokenize")
    runs = [(bool(mask[start]), vocabulary.decode(ids[start:end])) for start, end in pairwise(borders)]
    if not runs[0][0]:
        runs = runs[1:]  # what ends the prompt: a response begins with an answer
    if runs and not runs[-1][0] and said[-1][0]:
        runs = runs[:-1]  # what the template writes behind the last turn
    if [is_sampled for is_sampled, _ in runs] != [is_answer for is_answer, _ in said]:
        sampled, answers = sum(is_sampled for is_sampled, _ in runs), sum(is_answer for is_answer, _ in said)
        detail = f"response {number}: its mask has {sampled} stretches of sampled ids, its turns have {answers} answers"
        raise Refused("mask_differs_from_turns", detail, stage="tokenize")
    for (_, decoded), (_, run) in zip(runs, said, strict=True):
        _check_text(decoded, run, number)


def _retokenized(responses: Sequence[npt.NDArray[Any]], vocabulary: Vocabulary) -> int:
    """How many responses get other ids when they are decoded and encoded again."""
    vocabulary.encoder.encode_special_tokens = False
    texts = vocabulary.decode_batch([ids.tolist() for ids in responses])
    encodings = vocabulary.encoder.encode_batch(texts, add_special_tokens=False)
    return sum(encoding.ids != ids.tolist() for encoding, ids in zip(encodings, responses, strict=True))


# Groups whose responses are judged step by step. Each step is a region of its response, with a weight of its own, by which the mask says whose each token
# is. So borders of steps are found as borders of all regions are, in one render and one tokenization.

_FIRST_STEP = 2.0
"""The weight of the first step. Those of other trained tokens, such as stops, are 1."""


def require_steps(group: Group) -> None:
    """Raises:
    Refused: a response is not the text of its steps any more, since its reasoning was taken out.
    """
    for number, (turns, steps) in enumerate(zip(group.responses, group.steps, strict=True)):
        if len(turns) != 1 or len(turns[0].regions) != 1 or turns[0].text != "".join(text for text, _ in steps):
            raise Refused("steps_with_reasoning", f"response {number} has reasoning of its own, which its steps do not name", stage="group")


def with_steps(sample: Sample, steps: Sequence[tuple[str, float]]) -> Sample:
    """A conversation whose last turn has a region for each step, numbered by its weight."""
    regions = tuple(Region(TEXT, text, _FIRST_STEP + number) for number, (text, _) in enumerate(steps))
    return changed(sample, turns=(*sample.turns[:-1], changed(sample.turns[-1], regions=regions)))


def _step_columns(
    ids: npt.NDArray[Any], weights: npt.NDArray[np.float32], steps: Sequence[tuple[str, float]], vocabulary: Vocabulary, number: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """1 at the last token of each step, and its reward there.

    Raises:
        Refused: a token holds the end of one step and the beginning of the next, so neither has a token of its own to be judged at.
    """
    ends, rewards, controls = np.zeros(len(ids), np.uint8), np.zeros(len(ids), np.float32), {*vocabulary.control.values()}
    for at, (text, reward) in enumerate(steps):
        of_step = np.flatnonzero(weights == _FIRST_STEP + at)
        while len(of_step) and at == len(steps) - 1 and ids[of_step[-1]] in controls:  # the stop has the weight of what it ends
            of_step = of_step[:-1]
        said = vocabulary.decode(ids[of_step]).strip() if len(of_step) else ""
        # before the first one stands what a template writes there, such as an empty block of reasoning
        if said != text.strip() and not (at == 0 and said.endswith(text.strip())):
            raise Refused(
                "step_inside_token", f"response {number}: step {at} does not begin and end with tokens of its own", stage="tokenize"
            )
        ends[of_step[-1]], rewards[of_step[-1]] = 1, reward
    return ends, rewards


def _turn_columns(
    mask: npt.NDArray[np.uint8], answers: Sequence[tuple[str, float]], number: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """1 at the last token of each stretch that the model sampled, which is an answer, and its reward there.

    Raises:
        Refused: two answers are one stretch, so that the first has no end.
    """
    ends, rewards = mask.copy(), np.zeros(len(mask), np.float32)
    ends[:-1] &= mask[1:] == 0
    if ends.sum() != len(answers):
        detail = f"response {number}: {len(answers)} answers have a reward, its mask has {ends.sum()} stretches of sampled ids"
        raise Refused("mask_differs_from_turns", detail, stage="tokenize")
    rewards[ends == 1] = [reward for _, reward in answers]
    return ends, rewards


def _with_columns(scored: Scored, columns: Sequence[tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]]) -> Scored:
    return replace(scored, step_ends=tuple(ends for ends, _ in columns), step_rewards=tuple(rewards for _, rewards in columns))


def reject_masked(group: Group) -> None:
    """Raises:
    Refused: a response holds turns or weights that sampled ids do not tell apart, such as results of tools.
    """
    for number, turns in enumerate(group.responses):
        if len(turns) != 1 or any(region.loss_weight not in (None, 1.0) for region in turns[0].regions):
            detail = f"response {number} has {len(turns)} turns or untrained parts; its ids do not say which of them the model sampled"
            raise Refused("sampled_ids_without_mask", detail, stage="group")


def conversations(group: Group) -> tuple[Sample, ...]:
    """The prompt with each response: the prompt's weights are 0, those of an answer 1, where the source does not say otherwise.

    Raises:
        Refused: an image; a weight that is neither 0 nor 1, which a mask cannot hold.
    """
    reject_files((*group.prompt, *(turn for response in group.responses for turn in response)), "group")
    prompt = tuple(weighted(turn, 0.0) for turn in group.prompt)
    return tuple(conversation_of(group, (*prompt, *map(_answer, response))) for response in group.responses)


def conversation_of(group: Group, turns: tuple[Turn, ...]) -> Sample:
    """Turns of a group with what the whole group has: tools, documents, variables of the template."""
    return Sample(turns, group.tools, documents=group.documents, template_options=group.template_options)


def _answer(turn: Turn) -> Turn:
    if turn.role not in (ASSISTANT, COMPLETION):
        return weighted(turn, 0.0)
    weights = [1.0 if region.loss_weight is None else region.loss_weight for region in turn.regions]
    if not set(weights) <= {0.0, 1.0}:
        raise Refused("fractional_weight", f"loss weights {weights}; the mask of a response has 0 and 1 only", stage="group")
    return changed(turn, regions=tuple(changed(region, loss_weight=weight) for region, weight in zip(turn.regions, weights, strict=True)))


def rewards_of(group: Group) -> npt.NDArray[np.float32]:
    """float32[G].

    Raises:
        Refused: a reward that is no finite float32, or not one for each response.
    """
    with np.errstate(over="ignore"):
        rewards = np.array(group.rewards, np.float64).astype(np.float32)
    if not np.isfinite(rewards).all():
        raise Refused("reward_out_of_range", f"rewards {list(group.rewards)} are not all finite as float32", stage="group")
    if len(rewards) != len(group.responses) or not len(rewards):
        raise Refused("length_mismatch", f"{len(rewards)} rewards for {len(group.responses)} responses", stage="group")
    return rewards


@dataclass(frozen=True, slots=True)
class Renders:
    """A group's prompt, ended by the generation prompt, each of its conversations, and its rewards. What was sampled is not rendered."""

    prompt: Rendered | None
    whole: tuple[Rendered, ...]
    rewards: npt.NDArray[np.float32]
    group: Group


class Tokenize:
    """Blocks of a domain's groups → tokens."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        family = workspace.family(Rl)
        vocabulary, engines = workspace.vocabulary(family), workspace.engines(family)
        self._schema = f"domain {name}: schema {family.domains[name].schema_name!r}"
        self._template: ChatTemplate = workspace.template(family)
        self._reasoning = inline_reasoning(workspace, family)
        self._further = further_columns(family)
        self.prompts = Encoder(vocabulary, engines, MaskPolicy(mask={}, mask_default="mask", train_on_eos="none"), None, trains=False)
        self.whole = Encoder(vocabulary, engines, answer_policy(), family.preprocessing.max_seq_len)
        self._proven = Proven(self._template, self.whole)

    def __call__(self, items: Sequence[Item], quarantine: Quarantine) -> Iterator[tuple[Item, Scored]]:
        """The groups that are kept, with the items they come from; the others are in quarantine."""
        renders: list[Renders | Refused] = [self.renders(item) for item in items]
        good = [rendered for rendered in renders if isinstance(rendered, Renders)]
        prompts = iter(_parts(self.prompts.encode([rendered.prompt for rendered in good if rendered.prompt is not None])))
        whole = iter(_parts(self.whole.encode([rendered for group in good for rendered in group.whole])))
        tokens = [(next(prompts) if rendered.prompt is not None else None, [next(whole) for _ in rendered.whole]) for rendered in good]
        # a text may be long, and has its tokens now
        encoded = iter([(*ids, replace(group, prompt=None, whole=())) for ids, group in zip(tokens, good, strict=True)])
        reasons = [rendered if isinstance(rendered, Refused) else None for rendered in renders]
        del renders, good, tokens
        for item, reason in zip(items, reasons, strict=True):
            try:
                if reason is not None:
                    raise reason
                yield item, self._scored(*next(encoded), item.record.row)
            except Refused as refusal:
                item.reject(quarantine, refusal)

    def _scored(self, prompt: _Tokens | Refused | None, answers: Sequence[_Tokens | Refused], renders: Renders, row: int) -> Scored:
        if isinstance(prompt, Refused):
            raise prompt
        sampled = renders.group.sampled
        needs_logprobs = LOGPROBS in self._further
        if needs_logprobs != (sampled is not None and sampled.logprobs is not None):
            detail = (
                "its responses need log-probabilities"
                if needs_logprobs
                else "its log-probabilities are not stored: only the schema group has them"
            )
            raise Refused("logprobs", detail, stage="group")
        if bool(renders.group.steps) != (STEP_ENDS in self._further):
            stepwise = [name for name, each in schemas().items() if each.further == "steps"]
            known = f"the schemas {', '.join(stepwise)}, and group with turn_rewards_key"
            raise Refused("steps", f"rewards of steps are stored for {known}", stage="group")
        if sampled is None:
            assert prompt is not None
            scored = _scored(prompt, answers, renders.rewards, row)
            if not renders.group.steps:
                return scored
            weights = [answer[2][len(prompt[0]) :] for answer in answers if not isinstance(answer, Refused)]
            parts = zip(scored.responses, weights, renders.group.steps, strict=True)
            columns = [_step_columns(*part, self.whole.vocabulary, number) for number, part in enumerate(parts)]
            return _with_columns(scored, columns)
        prompt_ids = None if prompt is None else prompt[0]
        scored = scored_as_sampled(renders.group, prompt_ids, renders.rewards, self.whole.vocabulary, self.whole.max_seq_len, row)
        answers_of = zip(scored.masks, renders.group.steps, strict=False)
        return (
            _with_columns(scored, [_turn_columns(*part, number) for number, part in enumerate(answers_of)])
            if renders.group.steps
            else scored
        )

    def renders(self, item: Item) -> Renders | Refused:
        """The renders of a group, or its rejection."""
        group = item.example
        if not isinstance(group, Group):
            raise ConfigError(f"{self._schema} with these options gives a {type(group).__name__}; rl_groups needs a Group: {item.id}")
        try:
            group = self._reasoning.read(group) if group.sampled is None else group
            if group.sampled is not None and group.sampled.masks is None:
                reject_masked(group)
            samples = conversations(group) if group.sampled is None else ()
            if group.sampled is not None and group.sampled.whole:
                shown = (render(sample, self._template).text for sample in conversations(group))
                require_whole(group, shown, self.whole.vocabulary)
            if group.steps and group.sampled is None:
                require_steps(group)
                samples = tuple(map(with_steps, samples, group.steps))
            brings_prompt = group.sampled is not None and group.sampled.prompt is not None
            prompt = None if brings_prompt else render(conversation_of(group, group.prompt), self._template, generation_prompt=True)
            return Renders(prompt, tuple(map(self._proven.render, samples)), rewards_of(group), group)
        except Refused as refusal:
            return refusal


_Tokens = tuple[npt.NDArray[Any], npt.NDArray[np.uint8], npt.NDArray[np.float32]]


def _parts(encoded: Encoded) -> list[_Tokens | Refused]:
    """Ids, mask and weights of every example of a batch, or its rejection."""
    parts: list[_Tokens | Refused | None] = [None] * (len(encoded.kept) + len(encoded.refused))
    mask = (encoded.loss != 0).view(np.uint8)
    for number, position in enumerate(encoded.kept.tolist()):
        part = slice(int(encoded.offsets[number]), int(encoded.offsets[number + 1]))
        parts[position] = encoded.ids[part], mask[part], encoded.loss[part]
    for position, refusal in encoded.refused:
        parts[position] = refusal
    return [record_part for record_part in parts if record_part is not None]


def _scored(prompt: _Tokens, answers: Sequence[_Tokens | Refused], rewards: npt.NDArray[np.float32], row: int) -> Scored:
    start = len(prompt[0])
    responses, masks = [], []
    for number, answer in enumerate(answers):
        if isinstance(answer, Refused):
            raise Refused(answer.reason, f"response {number}: {answer.detail}", stage=answer.stage)
        ids, mask, _ = answer
        if not np.array_equal(ids[:start], prompt[0]) or mask[:start].any() or len(ids) == start:
            detail = f"response {number}: its conversation does not begin with the {start} tokens of the prompt and its generation prompt"
            raise Refused("prompt_differs", detail, stage="tokenize")
        responses.append(ids[start:])
        masks.append(mask[start:])
    return Scored(prompt[0], tuple(responses), tuple(masks), rewards, 0, 0, row)


# The groups of one domain.


def group_folders(target: Target, names: Iterable[str]) -> tuple[Path, ...]:
    """The folder of the groups to train on, and that of those held out, where any of these domains has some."""
    return (target.payload, target.payload / TEST) if holds_out(target.family, names) else (target.payload,)


def group_writer(target: Target, folder: Path, names: Sequence[str], storage: StorageFormat = "bin") -> TableWriter:
    """What writes groups of some domains to a folder. Those of one domain are always `bin`, as `sft_tokens` is."""
    family = target.family
    dtypes = group_dtypes(ids_dtype(family, target.vocabulary), further_columns(family))
    shard = family.output.max_tokens_per_shard
    return TableWriter(folder, "", GROUPS, dtypes, storage=storage, domains=names, max_tokens_per_shard=shard)


def write_groups(target: Target, quarantine: Quarantine) -> Draft:
    """Tokenize every group of a domain, in the order of the sources."""
    family, name = target.family, target.partition
    counts = dict.fromkeys(("read", "kept", "train", "test", "responses", "tokens", "trained_tokens"), 0)
    if family.domains[name].options.get("token_ids_key"):
        counts |= {"sampled": 0, "retokenized_otherwise": 0}
    with ExitStack() as stack:
        writers = [stack.enter_context(group_writer(target, folder, [name])) for folder in group_folders(target, [name])]
        reading, tokenize = Source.of(target.workspace, Rl, name, gives=Group).reading(), Tokenize(target.workspace, name)
        for items, in_test in reading.examples("tokenize groups", quarantine):
            split: tuple[list[Scored], list[Scored]] = ([], [])
            for item, group in tokenize(items, quarantine):
                to_test = in_test or held_out(asked_digest(family, item.example), family.test_fraction)
                split[to_test].append(replace(group, source=0, file=item.record.file))
            for writer, groups in zip(writers, split, strict=False):
                if groups:
                    writer.append(*group_columns(groups))
            add(counts, {"train": len(split[0]), "test": len(split[1])})
            for group in (*split[0], *split[1]):
                add(counts, _counts(group))
    counts["read"] = reading.read
    return Draft({**counts, **passed_over(reading)}, {})


def _counts(group: Scored) -> dict[str, int]:
    tokens, trained = len(group.prompt) + sum(map(len, group.responses)), sum(int(mask.sum()) for mask in group.masks)
    counts = {"kept": 1, "responses": len(group.responses), "tokens": tokens, "trained_tokens": trained}
    sampled = {} if group.retokenized is None else {"sampled": len(group.responses), "retokenized_otherwise": group.retokenized}
    rows = [] if group.runs is None else np.unique(group.runs[:, 0], return_counts=True)[1].tolist()
    return counts | sampled | ({"runs": len(rows), "runs_split": sum(number > 1 for number in rows)} if rows else {})


def merge_groups(target: Target, parts: Mapping[str, Published]) -> None:
    """Write the groups of all domains, domain by domain."""
    with ExitStack() as stack:
        for split, folder in zip(("train", TEST), group_folders(target, parts), strict=False):
            writer = stack.enter_context(group_writer(target, folder, tuple(parts), target.family.output.storage_format))
            for number, part in enumerate(parts.values()):
                if split in (folders := splits(part.directory)):
                    writer.append_stored(folders[split], domain=number)


# The sequences of a group as they are explained.

_RESPONSE = True, "a token that a model sampled; all of them are trained", ASSISTANT
_BETWEEN = False, "a token between the model's turns, which it did not sample; none of them is trained", USER
_PROMPT = False, "a token of the prompt as the source has it; prompts are not trained", USER


def sequences(workspace: Workspace, name: str) -> Sequences:
    """The sequence of a group's prompt, then those of its responses."""
    tokenize = Tokenize(workspace, name)

    def of(item: Item) -> list[Shown | Given]:
        renders = tokenize.renders(item)
        if isinstance(renders, Refused):
            raise renders
        prompt = None if renders.prompt is None else Shown(tokenize.prompts, renders.prompt)
        if renders.group.sampled is None:
            assert prompt is not None
            return [prompt, *(Shown(tokenize.whole, response, continues=True) for response in renders.whole)]
        ids, responses, masks = renders.group.sampled.prompt or (), renders.group.sampled.responses, renders.group.sampled.masks
        of_masks = [[_RESPONSE if value else _BETWEEN for value in mask] for mask in masks or [(1,) * len(each) for each in responses]]
        return [prompt or Given(ids, [_PROMPT] * len(ids)), *map(Given, responses, of_masks)]

    return of
