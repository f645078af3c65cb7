"""Groups whose responses come with the token ids that a model sampled, and often with their log-probabilities.

Decoding a rollout and tokenizing the text again gives other ids now and then: a model may sample ``▁hel`` ``lo`` where its tokenizer writes
``▁hello``. Log-probabilities then belong to tokens that are not there, and ratios to a policy that never existed. So ids are stored as they were
sampled, all of them trained, and how many texts would have been tokenized otherwise is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.configured import group_domains
from prep_assets.config.models import Rl
from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import TEXT, Group, Turn
from prep_assets.stores.groups import Scored
from prep_assets.tokenization.vocabulary import Vocabulary


def stores_logprobs(family: Rl) -> bool:
    """Whether responses are stored with log-probabilities, which the schema's option ``logprobs_key`` asks for.

    Raises:
        ConfigError: some domains have them and others do not.
    """
    having = {name: bool(family.domains[name].options.get("logprobs_key")) for name in group_domains(family)}
    if len(set(having.values())) > 1:
        lacking = sorted(name for name, has in having.items() if not has)
        raise ConfigError(
            f"domains {', '.join(lacking)} have no logprobs_key, others have: a store of groups has log-probabilities or has none"
        )
    return any(having.values())


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
    head = _ids(sampled.prompt, vocabulary, "prompt") if sampled.prompt is not None else prompt
    assert head is not None
    responses = tuple(_ids(ids, vocabulary, f"response {number}") for number, ids in enumerate(sampled.responses))
    for number, (ids, turns) in enumerate(zip(responses, group.responses, strict=True)):
        if limit is not None and len(head) + len(ids) > limit:
            detail = f"response {number}: {len(head) + len(ids):,} tokens, max_seq_len is {limit:,}"
            raise Refused("too_long", detail, stage="tokenize")
        _check_text(vocabulary.decode(ids), turns, number)
    masks = tuple(np.ones(len(ids), np.uint8) for ids in responses)
    logprobs = None if sampled.logprobs is None else tuple(np.array(each, np.float64).astype(np.float32) for each in sampled.logprobs)
    return Scored(head, responses, masks, rewards, 0, 0, row, logprobs, _retokenized(responses, vocabulary))


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
        found = decoded.find(words, at)
        if found < 0:
            detail = f"response {number}: its ids decode to {decoded[:80]!r}, its text is {words[:80]!r}"
            raise Refused("ids_differ_from_text", detail, stage="tokenize")
        at = found + len(words)


def _retokenized(responses: Sequence[npt.NDArray[Any]], vocabulary: Vocabulary) -> int:
    """How many responses get other ids when they are decoded and encoded again."""
    vocabulary.encoder.encode_special_tokens = False
    texts = vocabulary.decode_batch([ids.tolist() for ids in responses])
    again = vocabulary.encoder.encode_batch(texts, add_special_tokens=False)
    return sum(encoding.ids != ids.tolist() for encoding, ids in zip(again, responses, strict=True))


def refuse_masked(group: Group) -> None:
    """Raises:
    Refused: a response holds turns or weights that sampled ids do not tell apart, such as results of tools.
    """
    for number, turns in enumerate(group.responses):
        if len(turns) != 1 or any(region.loss_weight not in (None, 1.0) for region in turns[0].regions):
            detail = f"response {number} has {len(turns)} turns or untrained parts; its ids do not say which of them the model sampled"
            raise Refused("sampled_ids_without_mask", detail, stage="group")
