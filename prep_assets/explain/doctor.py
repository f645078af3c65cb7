"""`doctor`: a trainer's labels of a chat beside ours."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, nearest
from prep_assets.samples import ASSISTANT, THINKING, TOOL_CALL, Sample
from prep_assets.text.conversation import messages, pieces
from prep_assets.text.encode import Encoder, Places
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import InlineReasoning, render
from prep_assets.text.spans import MaskPolicy, Rendered
from prep_assets.text.template import ChatTemplate, bind
from prep_assets.text.vocabulary import load_vocabulary

# Trainers' rules for what is trained of a chat, read from their code and written anew: which ids a trainer gets, and which of them are labels.
#
# Each rule is given the messages and the tokenizer as transformers opens it, and shares no code with what makes our masks. Where a project is installed,
# its own code is used instead (see `trl`); what a version of it does otherwise than here is that version's.

Messages = Sequence[Mapping[str, Any]]
Labelled = tuple[list[int], list[bool]]
"""Token ids, and which of them are labels, before the shift by one."""
_DUMMY = "[[dummy_message]]"


class Stops(PrepAssetsError):
    """The trainer itself refuses the row, or cannot mask with this template."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A tokenizer with its chat template, as transformers has it."""

    tokenizer: Any

    def text(self, messages: Messages, tools: Any = None, *, prompt: bool = False) -> str:
        """The render.

        Raises:
            Stops: the template refuses these messages.
        """
        try:
            found: str = self.tokenizer.apply_chat_template(list(messages), tools=tools, tokenize=False, add_generation_prompt=prompt)
        except Exception as error:  # a template raises whatever it likes
            raise Stops(f"the chat template refuses these messages: {error}") from error
        return found

    def ids(self, text: str) -> list[int]:
        """The ids of a text, no special token added."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def rendered(self, messages: Messages, tools: Any = None, *, prompt: bool = False) -> list[int]:
        """The ids of a render."""
        return self.ids(self.text(messages, tools, prompt=prompt))


Rule = Callable[[Chat, Messages, Any], Labelled]


def trl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """`SFTTrainer` with ``assistant_only_loss=True``: what stands between the template's ``{% generation %}`` tags."""
    if "{% generation %}" not in chat.tokenizer.chat_template.replace("{%- ", "{% ").replace(" -%}", " %}"):
        raise Stops(
            "the chat template has no {% generation %} tags, so that TRL cannot tell what the assistant says; it stops, or takes its own template"
        )
    found = chat.tokenizer.apply_chat_template(
        list(messages), tools=tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    return list(found["input_ids"]), [bool(each) for each in found["assistant_masks"]]


def axolotl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """``type: chat_template`` with ``roles_to_train: [assistant]``, ``train_on_eos: turn``: where a render parts from one with a dummy in its place."""
    ids = chat.rendered(messages, tools)
    labels = [False] * len(ids)
    eos = chat.tokenizer.eos_token_id
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        dummy = chat.rendered([*messages[:at], {"role": "assistant", "content": _DUMMY}], tools)
        full = chat.rendered(messages[: at + 1], tools)
        start, end = _parting(dummy, full)
        if start < 0:
            continue
        labels[start:end] = [True] * (min(end, len(ids)) - start)
        stop = next((place for place in range(end, len(ids)) if ids[place] == eos), -1)
        if 0 <= stop - end <= 3:
            labels[stop] = True
    return ids, labels


def _parting(dummy: Sequence[int], full: Sequence[int]) -> tuple[int, int]:
    """Where two renders part from the front, and from the back, in the second; -1 where one is the beginning of the other."""
    shortest = min(len(dummy), len(full))
    start = next((at for at in range(shortest) if dummy[at] != full[at]), -1)
    end = next((len(full) - at for at in range(shortest) if dummy[-1 - at] != full[-1 - at]), -1)
    return (start, end) if start >= 0 and end >= start else (-1, -1)


def llamafactory(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """A template taken from the tokenizer: prompts and answers are tokenized one by one, and a whole answer slot is trained."""
    ids: list[int] = []
    labels: list[bool] = []
    done = ""
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before, after = chat.text(messages[:at], tools, prompt=True), chat.text(messages[: at + 1], tools)
        if not (before.startswith(done) and after.startswith(before)):
            raise Stops("the template writes earlier turns otherwise when more follow, which slots for questions and answers cannot say")
        for text, trained in ((before[len(done) :], False), (after[len(before) :], True)):
            part = chat.ids(text)
            ids += part
            labels += [trained] * len(part)
        done = after
    return ids, labels


def torchtune(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """``train_on_input: false``: whole messages are trained or masked, an answer with its header."""
    ids: list[int] = []
    labels: list[bool] = []
    for at, message in enumerate(messages):
        grown = chat.rendered(messages[: at + 1], tools)
        if grown[: len(ids)] != ids:
            raise Stops("the template writes earlier turns otherwise when more follow, so that messages have no tokens of their own")
        labels += [message["role"] == "assistant"] * (len(grown) - len(ids))
        ids = grown
    return ids, labels


def open_instruct(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """``sft_tulu_tokenize_and_truncate``: everything is trained but the messages of others, which are masked by the lengths of growing renders."""
    ids = chat.rendered(messages, tools)
    labels = [True] * len(ids)
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            continue
        start = len(chat.rendered(messages[:at], tools)) if at else 0
        answered = at + 1 < len(messages) and messages[at + 1]["role"] == "assistant"
        end = len(chat.rendered(messages[: at + 1], tools, prompt=answered))
        labels[start:end] = [False] * (min(end, len(ids)) - start)
    return ids, labels


def verl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """`MultiTurnSFTDataset`: each message is rendered alone; of an answer, as many tokens as the generation prompt has are masked."""
    system = _system_prompt(chat)
    probe = [{"role": "user", "content": ""}]
    header = len(chat.rendered(probe, prompt=True)) - len(chat.rendered(probe))
    ids: list[int] = []
    labels: list[bool] = []
    for at, message in enumerate(messages):
        own = chat.rendered([message], tools if at == 0 else None)
        own = own if at == 0 or message["role"] == "system" else own[len(system) :]
        ids += own
        trained = message["role"] == "assistant"
        labels += [trained and place >= header for place in range(len(own))]
    return ids, labels


def _system_prompt(chat: Chat) -> list[int]:
    """What the template writes before a lone message: one message less than two messages say twice."""
    probe = {"role": "user", "content": ""}
    one, two = chat.rendered([probe]), chat.rendered([probe, probe])
    return one[: len(one) - (len(two) - len(one))]


RULES: Mapping[str, tuple[str, Rule]] = {
    "trl": ("TRL, SFTTrainer with assistant_only_loss", trl),
    "llamafactory": ("LLaMA-Factory, with the template that it takes from the tokenizer", llamafactory),
    "axolotl": ("axolotl, type: chat_template, train_on_eos: turn", axolotl),
    "torchtune": ("torchtune, train_on_input: false", torchtune),
    "open-instruct": ("open-instruct, sft_tulu_tokenize_and_truncate", open_instruct),
    "verl": ("verl, MultiTurnSFTDataset", verl),
}
"""Trainer → what is meant, and its rule."""


@dataclass(frozen=True, slots=True)
class Ours:
    """Our side: the answers of the assistant are trained, each with the token that ends it."""

    template: ChatTemplate
    encoder: Encoder

    @classmethod
    def open(cls, tokenizer: str, template: str, revision: str | None = None) -> Ours:
        """Raises:
        ConfigError: no such tokenizer.
        TemplateError: no such template, or one whose render does not show where answers are.
        """
        plain = load_vocabulary(tokenizer, base=Path.cwd(), revision=revision)
        loaded = load_template(template, plain, base=Path.cwd())
        vocabulary = bind(plain, loaded)
        return cls(loaded, Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), MaskPolicy()))

    def row(self, sample: Sample) -> tuple[Rendered, Places]:
        """The render of a chat, its ids and their weights.

        Raises:
            Refused: why it is not used.
        """
        rendered = render(InlineReasoning("auto", REASONING_TAGS, self.template.shows_thinking).read(sample), self.template)
        for _, refusal in self.encoder.encode([rendered]).refused:
            raise refusal
        return rendered, self.encoder.places(rendered)

    def messages(self, sample: Sample) -> list[Mapping[str, Any]]:
        """The chat as messages, reasoning where the source has it."""
        form = self.template.form
        return [*messages(sample, pieces(sample, image=self.template.image_token, form=form), form=form)]


# Two labellings of one chat: the stretches on which they differ, and why.

Side = Literal["theirs", "ours", "ids"]
AFTER_STOP = "white space after the stop token is trained; a model that has stopped is asked for nothing more"
HEADER = "the header of an answer is trained, which the generation prompt writes and not the model"
TEMPLATE = "text that the template writes is trained"
NO_STOP = "the stop token is not trained: the model does not learn to end its answer"
NOTHING = "a whole answer is not trained"
PART = "a part of an answer is not trained"
PIECES = "the trainer tokenizes in pieces, or renders messages alone: a model that is served sees the tokens of the whole chat"
LIBRARY = "transformers' class of this tokenizer gives other ids than its own file"
TYPED = "a control token that is typed in a text becomes the control token"


@dataclass(frozen=True, slots=True)
class Difference:
    """A stretch that only one side trains, or from which on the ids are others.

    Attributes:
        side: who trains it; ``ids`` where the tokens themselves differ.
        start, end: tokens, of our ids (theirs, where theirs are others).
        text: what it says.
        reason: why, in a sentence that is the same for the same fault.
    """

    side: Side
    start: int
    end: int
    text: str
    reason: str


def compare(rendered: Rendered, ours: Places, ids: Sequence[int], labels: Sequence[bool], decoded: str, why: str) -> list[Difference]:
    """Everything on which two labellings differ.

    Args:
        ids, labels: theirs.
        decoded: their ids from where they part from ours to where they meet again, as text.
        why: the reason, where ids differ.
    """
    trained = ours.loss != 0
    low, high = meeting(ours.ids, ids)
    found: list[Difference] = []
    if low + high < max(len(ids), len(trained)):
        found.append(Difference("ids", low, len(ids) - high, decoded, why))
    theirs = np.zeros(len(trained), bool)
    theirs[:low] = labels[:low]
    if high:
        theirs[-high:] = labels[-high:]
    known = np.zeros(len(trained), bool)
    known[:low] = True
    known[len(trained) - high :] = True
    found += _runs("theirs", theirs & ~trained & known, rendered, ours)
    found += _runs("ours", trained & ~theirs & known, rendered, ours)
    return sorted(found, key=lambda each: (each.start, each.side))


def meeting(ours: npt.NDArray[np.uint32], theirs: Sequence[int]) -> tuple[int, int]:
    """How many ids are equal from the front, and how many of the others from the back."""
    one, other = ours.astype(np.int64), np.asarray(theirs, np.int64)
    shortest = min(len(one), len(other))
    front = _equal(one[:shortest], other[:shortest])
    left = shortest - front
    return front, _equal(one[::-1][:left], other[::-1][:left])


def _equal(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> int:
    differs = one != other
    return int(differs.argmax()) if differs.any() else len(differs)


def _runs(side: Side, chosen: npt.NDArray[np.bool_], rendered: Rendered, ours: Places) -> Iterator[Difference]:
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    for start, end in edges.reshape(-1, 2).tolist():
        low, high = int(ours.starts[start]), int(ours.ends[end - 1])
        explain = _trained_by_them if side == "theirs" else _trained_by_us
        yield Difference(side, start, end, rendered.text[low:high], explain(rendered, low, high))


def _trained_by_them(rendered: Rendered, low: int, high: int) -> str:
    text = rendered.text[low:high]
    for span in rendered.spans:
        if span.role != ASSISTANT and span.start < high and low < span.end:
            return f"text of a {span.role} turn is trained"
    if text.isspace() and any(stop.end == low for stop in rendered.stops):
        return AFTER_STOP
    if any(stop.end <= low for stop in rendered.stops) and all(span.start < low for span in rendered.spans):
        return "what the template writes after the last stop token is trained"
    following = next((span for span in rendered.spans if span.start >= low), None)
    return HEADER if following is not None and following.role == ASSISTANT else TEMPLATE


def _trained_by_us(rendered: Rendered, low: int, high: int) -> str:
    touched = [span for span in rendered.spans if span.start < high and low < span.end]
    if not touched:
        return NO_STOP
    kinds = {span.region.kind for span in touched}
    if kinds == {THINKING}:
        return "reasoning is not trained"
    if kinds == {TOOL_CALL}:
        return "a tool call is not trained"
    return NOTHING if all(low <= span.start and span.end <= high for span in touched) else PART


# A trainer's preparation and ours on the rows of a file.


@dataclass(frozen=True, slots=True)
class Compared:
    """One row on both sides: our render, our tokens, and how the trainer's labels differ."""

    id: str
    rendered: Rendered
    ours: Places
    differences: tuple[Difference, ...]


@dataclass
class Diagnosis:
    """What was found.

    Attributes:
        how: whose code prepared the trainer's side.
        rows: how many were looked at.
        compared, equal: rows that both sides take, and those of them whose labels are all equal.
        refused: why we refuse rows, with how many.
        stopped: why the trainer does, with how many.
        reasons: (side, reason) → rows.
        tokens: (side, reason) → tokens.
        shown: rows that differ, the first of each reason first.
    """

    trainer: str
    how: str
    rows: int = 0
    compared: int = 0
    equal: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    shown: list[Compared] = field(default_factory=list)

    def add(self, row: Compared, most: int) -> None:
        """Count a row; it is shown where it differs in a way that was not seen before, or there is room."""
        self.compared += 1
        self.equal += not row.differences
        kinds = dict.fromkeys((each.side, each.reason) for each in row.differences)
        is_new = bool(kinds.keys() - self.reasons.keys())
        self.reasons.update(kinds.keys())
        for each in row.differences:
            self.tokens[each.side, each.reason] += each.end - each.start
        if row.differences and most and (is_new or len(self.shown) < most):
            self.shown.append(row)


def diagnose(ours: Ours, tokenizer: Any, trainer: str, rows: Iterable[tuple[str, Sample]], *, most: int = 3) -> Diagnosis:
    """Compare on every row.

    Args:
        tokenizer: as transformers opens it, with the chat template that the trainer is given.
        trainer: a key of `RULES`.
        rows: record id and chat.
        most: how many rows that differ are kept to be shown; more where there are more reasons.

    Raises:
        ConfigError: no such trainer.
    """
    if trainer not in RULES:
        raise ConfigError(f"no trainer {trainer!r}{nearest(trainer, RULES) or '.'} Known: {', '.join(RULES)}")
    version = trl_version() if trainer == "trl" else None
    name, _ = RULES[trainer]
    how = f"its own code, version {version}" if version else "rules read from its code; the trainer itself is not run"
    found = Diagnosis(name, how)
    taken = list(_taken(ours, rows, found))
    for (identity, rendered, places, _), labelled in zip(taken, _theirs(tokenizer, trainer, version, taken, found), strict=True):
        if labelled is None:
            continue
        ids, labels = labelled
        low, high = meeting(places.ids, ids)
        why = "" if low + high == max(len(ids), len(places.ids)) else _why_other_ids(ours, tokenizer, rendered, places)
        differences = compare(rendered, places, ids, labels, tokenizer.decode(ids[low : len(ids) - high]), why)
        found.add(Compared(identity, rendered, places, tuple(differences)), most)
    return found


def _why_other_ids(ours: Ours, tokenizer: Any, rendered: Rendered, places: Places) -> str:
    whole = list(tokenizer(rendered.text, add_special_tokens=False)["input_ids"])
    if whole == places.ids.tolist():
        return PIECES
    typed = any(token in rendered.text[start:end] for start, end in rendered.content for token in ours.encoder.vocabulary.control)
    return TYPED if typed else LIBRARY


Taken = tuple[str, Rendered, Places, Mapping[str, Any]]


def _taken(ours: Ours, rows: Iterable[tuple[str, Sample]], found: Diagnosis) -> Iterator[Taken]:
    """The rows that we do not refuse, with the messages of each."""
    for identity, sample in rows:
        found.rows += 1
        try:
            rendered, places = ours.row(sample)
            given = {"messages": ours.messages(sample), **({"tools": [*sample.tools]} if sample.tools else {})}
        except Refused as refusal:
            found.refused[f"{refusal.reason}: {refusal.detail}"] += 1
            continue
        yield identity, rendered, places, given


def _theirs(tokenizer: Any, trainer: str, version: str | None, taken: Sequence[Taken], found: Diagnosis) -> Iterator[Labelled | None]:
    """The trainer's ids and labels of each row; `None` where it stops."""
    if version:
        try:
            yield from prepared_by_trl(tokenizer, [given for *_, given in taken])
        except Stops as error:
            found.stopped[str(error)] += len(taken)
            yield from [None] * len(taken)
        return
    chat, (_, rule) = Chat(tokenizer), RULES[trainer]
    for *_, given in taken:
        try:
            yield rule(chat, given["messages"], given.get("tools"))
        except Stops as error:
            found.stopped[str(error)] += 1
            yield None


def trl_version() -> str | None:
    """The version of TRL; `None` where it, or what its trainer needs, cannot be imported."""
    try:
        import datasets  # noqa: F401
        import trl
        from trl import SFTConfig, SFTTrainer  # noqa: F401
    except ImportError:
        return None
    return str(trl.__version__)


def prepared_by_trl(tokenizer: Any, rows: Sequence[Mapping[str, Any]]) -> list[Labelled]:
    """Ids and labels of every row, as `SFTTrainer` with ``assistant_only_loss`` has them.

    Raises:
        Stops: the trainer refuses the data set.
    """
    from datasets import Dataset, disable_progress_bars
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    disable_progress_bars()
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes))
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"output_dir": folder, "report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True}
        try:
            config = SFTConfig(assistant_only_loss=True, max_length=None, packing=False, **options)
            trainer = SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list([*map(dict, rows)]), processing_class=tokenizer)
        except Exception as error:  # whatever it says, it is TRL's answer
            raise Stops(f"TRL stops: {type(error).__name__}: {error}") from error
        return [_labelled(trainer.data_collator([row])) for row in trainer.train_dataset]


def _labelled(batch: Mapping[str, Any]) -> Labelled:
    return batch["input_ids"][0].tolist(), (batch["labels"][0] != -100).tolist()
