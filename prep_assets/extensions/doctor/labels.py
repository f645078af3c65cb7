"""`doctor`: compare a trainer's labels of chats with ours."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from prep_assets.config.family import REASONING_TAGS
from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, require_known
from prep_assets.samples import ASSISTANT, THINKING, TOOL_CALL, Sample
from prep_assets.text.conversation import messages, pieces
from prep_assets.text.encode import Encoder, Places
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import InlineReasoning, render
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate, bind
from prep_assets.text.vocabulary import load_vocabulary

# Trainers' labelling rules, reimplemented from their code: the ids of a chat, and which of them are labels.
#
# A rule gets the messages and the transformers tokenizer, and shares no code with our masks. TRL's own code is used where it is installed (see
# `prepared_by_trl`), whose versions may differ from the rule here.

Messages = Sequence[Mapping[str, Any]]
Labelled = tuple[list[int], list[bool]]
"""Token ids, and which of them are labels, before the shift by one."""
_DUMMY = "[[dummy_message]]"


class Stops(PrepAssetsError):
    """The trainer rejects the row, or cannot mask with this template."""


class Chat(Struct, frozen=True):
    """A tokenizer with its chat template, as transformers has it."""

    tokenizer: Any

    def text(self, messages: Messages, tools: Any = None, *, prompt: bool = False) -> str:
        """The render.

        Raises:
            Stops: the template raises on these messages.
        """
        try:
            rendered: str = self.tokenizer.apply_chat_template(list(messages), tools=tools, tokenize=False, add_generation_prompt=prompt)
        except Exception as error:  # templates may raise anything
            raise Stops(f"the chat template refuses these messages: {error}") from error
        return rendered

    def ids(self, text: str) -> list[int]:
        """The ids of a text, without added special tokens."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def rendered(self, messages: Messages, tools: Any = None, *, prompt: bool = False) -> list[int]:
        """The ids of a render."""
        return self.ids(self.text(messages, tools, prompt=prompt))


Rule = Callable[[Chat, Messages, Any], Labelled]


def trl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """`SFTTrainer` with ``assistant_only_loss=True``: trains the text between the template's ``{% generation %}`` tags."""
    if "{% generation %}" not in chat.tokenizer.chat_template.replace("{%- ", "{% ").replace(" -%}", " %}"):
        raise Stops(
            "the chat template has no {% generation %} tags, so that TRL cannot tell what the assistant says; it stops, or takes its own template. "
            "Name one that has them, such as TRL's trl/chat_templates/*_training.jinja: --template FILE"
        )
    encoded = chat.tokenizer.apply_chat_template(
        list(messages), tools=tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    return list(encoded["input_ids"]), [bool(flag) for flag in encoded["assistant_masks"]]


def axolotl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """``type: chat_template`` with ``roles_to_train: [assistant]``, ``train_on_eos: turn``: trains where a render differs from one with a dummy answer."""
    ids = chat.rendered(messages, tools)
    labels = [False] * len(ids)
    eos = chat.tokenizer.eos_token_id
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        dummy = chat.rendered([*messages[:at], {"role": "assistant", "content": _DUMMY}], tools)
        full = chat.rendered(messages[: at + 1], tools)
        start, end = _differing_range(dummy, full)
        if start < 0:
            continue
        labels[start:end] = [True] * (min(end, len(ids)) - start)
        stop = next((place for place in range(end, len(ids)) if ids[place] == eos), -1)
        if 0 <= stop - end <= 3:
            labels[stop] = True
    return ids, labels


def _differing_range(dummy: Sequence[int], full: Sequence[int]) -> tuple[int, int]:
    """The range (start, end) of `full` that differs from `dummy`; (-1, -1) where one is a prefix of the other."""
    shortest = min(len(dummy), len(full))
    start = next((at for at in range(shortest) if dummy[at] != full[at]), -1)
    end = next((len(full) - at for at in range(shortest) if dummy[-1 - at] != full[-1 - at]), -1)
    return (start, end) if start >= 0 and end >= start else (-1, -1)


def llamafactory(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """A template parsed from the tokenizer: prompts and answers are tokenized separately, and whole answer slots are trained."""
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
    """``train_on_input: false``: trains whole assistant messages, headers included."""
    ids: list[int] = []
    labels: list[bool] = []
    for at, message in enumerate(messages):
        grown = chat.rendered(messages[: at + 1], tools)
        if grown[: len(ids)] != ids:
            raise Stops("the template writes earlier turns otherwise when more follow, so that no message has fixed tokens")
        labels += [message["role"] == "assistant"] * (len(grown) - len(ids))
        ids = grown
    return ids, labels


def open_instruct(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """``sft_tulu_tokenize_and_truncate``: trains all but the messages of other roles, masked by lengths of partial renders."""
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
    """`MultiTurnSFTDataset`: renders messages separately, and masks the length of the generation prompt at the start of answers."""
    system = _system_prompt(chat)
    probe = [{"role": "user", "content": ""}]
    header = len(chat.rendered(probe, prompt=True)) - len(chat.rendered(probe))
    ids: list[int] = []
    labels: list[bool] = []
    for number, message in enumerate(messages):
        message_ids = chat.rendered([message], tools if number == 0 else None)
        message_ids = message_ids if number == 0 or message["role"] == "system" else message_ids[len(system) :]
        ids += message_ids
        trained = message["role"] == "assistant"
        labels += [trained and place >= header for place in range(len(message_ids))]
    return ids, labels


def nemo_rl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """`sft_processor`: a message is what the growing render has beyond the one before, and an answer is trained whole, header included."""
    begin, end = chat.tokenizer.bos_token, chat.tokenizer.eos_token
    before, ids, labels = "", list[int](), list[bool]()
    for number, message in enumerate(messages):
        text = chat.text(messages[: number + 1], tools)
        apart = (at for at, (old, new) in enumerate(zip(before, text, strict=False)) if old != new)
        added = text[next(apart, min(len(before), len(text))) :]
        if number == 0 and begin and not added.startswith(begin):
            added = begin + added
        if number == len(messages) - 1 and end and not added.rstrip("\n").endswith(end):
            added += end
        message_ids = chat.ids(added)
        ids += message_ids
        labels += [message["role"] == "assistant"] * len(message_ids)
        before = text
    return ids, labels


def _system_prompt(chat: Chat) -> list[int]:
    """The ids that the template writes before a single message: its render without what a second message adds."""
    probe = {"role": "user", "content": ""}
    single, double = chat.rendered([probe]), chat.rendered([probe, probe])
    return single[: len(single) - (len(double) - len(single))]


RULES: Mapping[str, tuple[str, Rule]] = {
    "trl": ("TRL, SFTTrainer with assistant_only_loss", trl),
    "llamafactory": ("LLaMA-Factory, with the template that it takes from the tokenizer", llamafactory),
    "axolotl": ("axolotl, type: chat_template, train_on_eos: turn", axolotl),
    "torchtune": ("torchtune, train_on_input: false", torchtune),
    "open-instruct": ("open-instruct, sft_tulu_tokenize_and_truncate", open_instruct),
    "verl": ("verl, MultiTurnSFTDataset", verl),
    "nemo-rl": ("NeMo RL, sft_processor with add_bos, add_eos and no generation prompt, as in its example", nemo_rl),
    # for templates of which it knows nothing special it does what verl does
    "slime": ("slime, MultiTurnLossMaskGenerator with loss_mask_type: qwen", verl),
}
"""Trainer → its description and rule."""


# Trainers whose renderers write ids themselves, without a chat template. Their own code runs, with the tokenizer that is compared.


def _prime_rl(tokenizer: Any, renderer: str) -> Rule:
    from renderers.base import build_training_sample, create_renderer
    from renderers.configs import config_from_name

    made = create_renderer(tokenizer, config_from_name(renderer))

    def rule(chat: Chat, messages: Messages, tools: Any) -> Labelled:
        sample = build_training_sample(made, [*map(dict, messages)], tools=tools, ensure_final_stop=True)
        return list(sample.token_ids), [*map(bool, sample.loss_mask)]

    return rule


def _tinker(tokenizer: Any, renderer: str) -> Rule:
    from tinker_cookbook.renderers import TrainOnWhat, get_renderer

    made = get_renderer(renderer, tokenizer, model_name=renderer)

    def in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
        if unknown := message.keys() - {"role", "content", "reasoning_content"}:
            raise Stops(f"{', '.join(sorted(unknown))} of a message: chats with tools are not compared with Tinker's renderers")
        said = [{"type": "text", "text": message["content"]}]
        thought = message.get("reasoning_content")
        return {"role": message["role"], "content": [{"type": "thinking", "thinking": thought}, *said] if thought else message["content"]}

    def rule(chat: Chat, messages: Messages, tools: Any) -> Labelled:
        if tools:
            raise Stops("chats with tools are not compared with Tinker's renderers")
        rendered, weights = made.build_supervised_example([*map(in_parts, messages)], train_on_what=TrainOnWhat.ALL_ASSISTANT_MESSAGES)
        return rendered.to_ints(), [weight > 0 for weight in weights.tolist()]

    return rule


RENDERERS: Mapping[str, tuple[str, str, Callable[[Any, str], Rule]]] = {
    "prime-rl": ("prime-rl, build_training_sample", "renderers", _prime_rl),
    "tinker": ("Tinker's cookbook, TrainOnWhat.ALL_ASSISTANT_MESSAGES", "tinker-cookbook", _tinker),
}
"""Trainer → its description, the package with its renderers, and what makes a rule of a tokenizer and the name of a renderer."""


def _rule_of(trainer: str, tokenizer: Any, renderer: str | None) -> tuple[str, str, Rule]:
    """The description of a trainer, whose code runs, and its rule."""
    known = (*RULES, *RENDERERS)
    require_known("no trainer", trainer, known, "Known")
    if renderer is None and trainer in RENDERERS:
        raise ConfigError(f"{trainer} needs --renderer, the name of a renderer, such as qwen3")
    if renderer is not None and trainer in RULES:
        raise ConfigError(f"--renderer: {trainer} has no renderers; {' and '.join(RENDERERS)} have")
    if renderer is None:
        name, rule = RULES[trainer]
        return name, "rules read from its code; the trainer itself is not run", rule
    name, package, make = RENDERERS[trainer]
    try:
        made = make(tokenizer, renderer)
    except Exception as error:  # a renderer may raise anything
        raise ConfigError(f"{trainer}: the renderer {renderer!r} of {package} (pip install {package}) cannot be opened: {error}") from error

    def own(chat: Chat, messages: Messages, tools: Any) -> Labelled:
        try:
            return made(chat, messages, tools)
        except Stops:
            raise
        except Exception as error:
            raise Stops(f"the renderer refuses these messages: {type(error).__name__}: {error}") from error

    return name, f"its own code, {package} {version(package)}, renderer {renderer}", own


class Ours(Struct, frozen=True):
    """Our labels: assistant answers are trained, stop tokens included."""

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
            Refused: the chat is rejected.
        """
        form = self.template.form
        rendered = render(InlineReasoning("auto", REASONING_TAGS, form.shows_reasoning, form.shows_calls).read(sample), self.template)
        for _, rejection in self.encoder.encode([rendered]).refused:
            raise rejection
        return rendered, self.encoder.places(rendered)

    def messages(self, sample: Sample) -> list[Mapping[str, Any]]:
        """The chat as messages, with reasoning as in the source."""
        form = self.template.form
        return [*messages(sample, pieces(sample, marks=self.template.marks, form=form), form=form)]


# Differences between two labellings of one chat, with reasons.

Side = Literal["theirs", "ours", "ids"]
AFTER_STOP = "white space after the stop token is trained; a model that has stopped is asked for nothing more"
HEADER = "the header of an answer is trained, which the generation prompt writes and not the model"
TEMPLATE = "text that the template writes is trained"
NO_STOP = "the stop token is not trained: the model does not learn to end its answer"
NOTHING = "a whole answer is not trained"
PART = "a part of an answer is not trained"
OTHER_TEXT = "the renderer writes another text than the chat template"
PIECES = "the trainer tokenizes in pieces, or renders messages alone: a model that is served sees the tokens of the whole chat"
LIBRARY = "transformers' class of this tokenizer gives other ids than its own file"
TYPED = "a control token that is typed in a text becomes the control token"


@dataclass(frozen=True, slots=True)
class Difference:
    """A stretch that only one side trains, or whose ids differ.

    Attributes:
        side: the side that trains it; ``ids`` where the ids differ.
        start, end: tokens of our ids; of theirs where the ids differ.
        text: its text.
        reason: why, in one fixed sentence per fault.
    """

    side: Side
    start: int
    end: int
    text: str
    reason: str


def compare(rendered: Rendered, ours: Places, ids: Sequence[int], labels: Sequence[bool], decoded: str, why: str) -> list[Difference]:
    """The differences between two labellings.

    Args:
        ids, labels: those of the trainer.
        decoded: text of the trainer's ids between the common prefix and suffix.
        why: the reason why ids differ.
    """
    trained = ours.loss != 0
    low, high = meeting(ours.ids, ids)
    differences: list[Difference] = []
    if low + high < max(len(ids), len(trained)):
        differences.append(Difference("ids", low, len(ids) - high, decoded, why))
    theirs = np.zeros(len(trained), bool)
    theirs[:low] = labels[:low]
    if high:
        theirs[-high:] = labels[-high:]
    known = np.zeros(len(trained), bool)
    known[:low] = True
    known[len(trained) - high :] = True
    differences += _runs("theirs", theirs & ~trained & known, rendered, ours)
    differences += _runs("ours", trained & ~theirs & known, rendered, ours)
    return sorted(differences, key=lambda difference: (difference.start, difference.side))


def meeting(ours: npt.NDArray[np.uint32], theirs: Sequence[int]) -> tuple[int, int]:
    """Lengths of the common prefix, and of the common suffix of the rest."""
    our_ids, their_ids = ours.astype(np.int64), np.asarray(theirs, np.int64)
    shortest = min(len(our_ids), len(their_ids))
    front = _common_prefix_length(our_ids[:shortest], their_ids[:shortest])
    rest = shortest - front
    return front, _common_prefix_length(our_ids[::-1][:rest], their_ids[::-1][:rest])


def _common_prefix_length(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> int:
    differs = first != second
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


# A trainer's labels and ours for the rows of a file.


class Compared(Struct, frozen=True):
    """One row: our render and tokens, and how the trainer's labels differ."""

    id: str
    rendered: Rendered
    ours: Places
    differences: tuple[Difference, ...]


class Diagnosis(Struct):
    """The result of a comparison.

    Attributes:
        how: whose code prepared the trainer's side.
        rows: count of rows read.
        compared, equal: rows that both sides accept, and those with equal labels.
        refused: our reasons to reject rows → rows.
        stopped: the trainer's reasons → rows.
        reasons: (side, reason) → rows.
        tokens: (side, reason) → tokens.
        shown: differing rows to show.
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
        """Count a row, and keep it to show where it has a new reason, or fewer than `most` are kept."""
        self.compared += 1
        self.equal += not row.differences
        kinds = dict.fromkeys((difference.side, difference.reason) for difference in row.differences)
        is_new = bool(kinds.keys() - self.reasons.keys())
        self.reasons.update(kinds.keys())
        for difference in row.differences:
            self.tokens[difference.side, difference.reason] += difference.end - difference.start
        if row.differences and most and (is_new or len(self.shown) < most):
            self.shown.append(row)


def diagnose(
    ours: Ours, tokenizer: Any, trainer: str, rows: Iterable[tuple[str, Sample]], *, most: int = 3, renderer: str | None = None
) -> Diagnosis:
    """Compare the labels of every row.

    Args:
        tokenizer: a transformers tokenizer with the trainer's chat template.
        trainer: a key of `RULES` or of `RENDERERS`.
        rows: record id and chat.
        most: how many differing rows to keep; more where there are more reasons.
        renderer: the name of one, for trainers that have them.

    Raises:
        ConfigError: no such trainer or renderer, or its package is missing.
    """
    name, how, rule = _rule_of(trainer, tokenizer, renderer)
    own_trl = trl_version() if trainer == "trl" else None
    diagnosis = Diagnosis(name, f"its own code, version {own_trl}" if own_trl else how)
    accepted = list(_accepted_rows(ours, rows, diagnosis))
    for (identity, rendered, places, _), labelled in zip(
        accepted, _trainer_labels(tokenizer, rule, own_trl is not None, accepted, diagnosis), strict=True
    ):
        if labelled is None:
            continue
        ids, labels = labelled
        rest = slice(len(ids), None)
        if renderer is not None and not places.loss[rest].any() and ids == places.ids[: len(ids)].tolist():
            # a renderer need not write what a template writes behind the last stop, such as a line break
            ids, labels = places.ids.tolist(), labels + [False] * len(places.ids[rest])
        low, high = meeting(places.ids, ids)
        why = "" if low + high == max(len(ids), len(places.ids)) else _why_ids_differ(ours, tokenizer, rendered, places)
        if why and renderer is not None and tokenizer.decode(ids).rstrip() != rendered.text.rstrip():
            why = OTHER_TEXT
        differences = compare(rendered, places, ids, labels, tokenizer.decode(ids[low : len(ids) - high]), why)
        diagnosis.add(Compared(identity, rendered, places, tuple(differences)), most)
    return diagnosis


def _why_ids_differ(ours: Ours, tokenizer: Any, rendered: Rendered, places: Places) -> str:
    whole = list(tokenizer(rendered.text, add_special_tokens=False)["input_ids"])
    if whole == places.ids.tolist():
        return PIECES
    typed = any(token in rendered.text[start:end] for start, end in rendered.content for token in ours.encoder.vocabulary.control)
    return TYPED if typed else LIBRARY


Taken = tuple[str, Rendered, Places, Mapping[str, Any]]


def _accepted_rows(ours: Ours, rows: Iterable[tuple[str, Sample]], diagnosis: Diagnosis) -> Iterator[Taken]:
    """Yield the rows that we accept, with their messages; count the others."""
    for identity, sample in rows:
        diagnosis.rows += 1
        try:
            rendered, places = ours.row(sample)
            example = {"messages": ours.messages(sample), **({"tools": [*sample.tools]} if sample.tools else {})}
        except Refused as rejection:
            diagnosis.refused[f"{rejection.reason}: {rejection.detail}"] += 1
            continue
        yield identity, rendered, places, example


def _trainer_labels(tokenizer: Any, rule: Rule, by_trl: bool, accepted: Sequence[Taken], diagnosis: Diagnosis) -> Iterator[Labelled | None]:
    """Yield the trainer's ids and labels by row; `None` where it stops."""
    if by_trl:
        try:
            yield from prepared_by_trl(tokenizer, [example for *_, example in accepted])
        except Stops as error:
            diagnosis.stopped[str(error)] += len(accepted)
            yield from [None] * len(accepted)
        return
    chat = Chat(tokenizer)
    for *_, example in accepted:
        try:
            yield rule(chat, example["messages"], example.get("tools"))
        except Stops as error:
            diagnosis.stopped[str(error)] += 1
            yield None


def trl_version() -> str | None:
    """The version of TRL; `None` where its trainer cannot be imported."""
    try:
        import datasets  # noqa: F401
        import trl
        from trl import SFTConfig, SFTTrainer  # noqa: F401
    except ImportError:
        return None
    return str(trl.__version__)


def prepared_by_trl(tokenizer: Any, rows: Sequence[Mapping[str, Any]]) -> list[Labelled]:
    """Prepare rows with `SFTTrainer` and ``assistant_only_loss``.

    Raises:
        Stops: the trainer rejects the data set.
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
        except Exception as error:  # TRL may raise anything
            raise Stops(f"TRL stops: {type(error).__name__}: {error}") from error
        return [_labelled(trainer.data_collator([row])) for row in trainer.train_dataset]


def _labelled(batch: Mapping[str, Any]) -> Labelled:
    return batch["input_ids"][0].tolist(), (batch["labels"][0] != -100).tolist()
