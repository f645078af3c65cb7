"""The model families behind the templates: their control tokens, and what of a render the model generates, by their published formats.

`generated` is written down from the formats, not from our code: a pattern whose group `t` is what a model generates, stop included, found in a
render whose contents hold none of its markers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A family of models.

    Attributes:
        control: its control tokens: special ones, and structural ones such as ``<think>``.
        generated: what the model generates.
        image: its image token.
        debated: control tokens that generation tags mark and the format does not say are generated, or the other way round.
    """

    control: tuple[str, ...]
    generated: re.Pattern[str]
    bos: str = ""
    eos: str = ""
    image: str = ""
    debated: tuple[str, ...] = ()

    @property
    def special(self) -> Mapping[str, str]:
        return {name: text for name, text in (("bos_token", self.bos), ("eos_token", self.eos)) if text}


def _until(header: str, *stops: str, prompt: str = "") -> re.Pattern[str]:
    """From a header, with what else the generation prompt holds where that stands there too, to the first of the stops."""
    given = f"(?:{re.escape(prompt)})?" if prompt else ""
    return re.compile(f"(?:{header}){given}(?P<t>.*?(?:{'|'.join(map(re.escape, stops))}))", re.DOTALL)


IM = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
ASSISTANT = r"<\|im_start\|>assistant\n"
TOOLS = ("calls", "call", "outputs", "output")
DEEPSEEK_TOOLS = tuple(f"<｜tool▁{name}▁{end}｜>" for name in TOOLS for end in ("begin", "end"))

CHATML = Model((*IM, *TAGS), _until(ASSISTANT, "<|im_end|>"), eos="<|im_end|>")
QWEN_VL = Model((*IM, *TAGS, *VISION), CHATML.generated, eos="<|im_end|>", image="<|image_pad|>")
THINKING = Model((*IM, *TAGS, *VISION), _until(ASSISTANT, "<|im_end|>", prompt="<think>\n"), eos="<|im_end|>", image="<|image_pad|>")
NEMOTRON = Model((*IM, *TAGS), THINKING.generated, bos="<s>", eos="<|im_end|>")
NO_THINKING = Model(
    (*IM, *TAGS, *VISION), _until(ASSISTANT, "<|im_end|>", prompt="<think>\n\n</think>\n\n"), eos="<|im_end|>", image="<|image_pad|>"
)
LFM = Model(
    (*IM, *TAGS, "<image>", *(f"<|tool_{name}_{end}|>" for name in ("list", "call", "response") for end in ("start", "end"))),
    CHATML.generated,
    bos="<|startoftext|>",
    eos="<|im_end|>",
    image="<image>",
)
COHERE_TOKENS = ("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>")
COHERE = Model(COHERE_TOKENS, _until(r"<\|CHATBOT_TOKEN\|>", "<|END_OF_TURN_TOKEN|>"), "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>")
COHERE2 = Model(
    (*COHERE_TOKENS, "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    _until(r"<\|CHATBOT_TOKEN\|><\|START_RESPONSE\|>", "<|END_OF_TURN_TOKEN|>"),
    "<BOS_TOKEN>",
    "<|END_OF_TURN_TOKEN|>",
)
DEEPSEEK = Model(
    ("<｜User｜>", "<｜Assistant｜>", "<｜tool▁sep｜>", *DEEPSEEK_TOOLS, "<think>", "</think>"),
    # of a second call the template forgets the header, so that it begins right after the results
    _until(
        "<｜Assistant｜>|<｜tool▁outputs▁end｜>|<｜tool▁output▁end｜>(?=\n<｜tool▁call▁begin｜>)",
        "<｜end▁of▁sentence｜>",
        prompt="<think>\n",
    ),
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
)
GEMMA = Model(
    ("<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<eos>"),
    _until("<start_of_turn>model\n", "<end_of_turn>"),
    "<bos>",
    "<eos>",
    "<start_of_image>",
)
GEMMA4 = Model(
    *(
        (
            *("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>"),
            *("<tool_response|>", '<|"|>', "<|think|>", "<|image|>", "<|audio|>", "<|video|>", "<eos>"),
        ),
        _until(r"<\|turn>model\n|<tool_response\|>(?!<\|tool_response>|<\|turn>)", "<turn|>", "<|tool_response>"),
    ),
    bos="<bos>",
    eos="<eos>",
    image="<|image|>",
    debated=("<|tool_response>",),  # stops a call, by Google's documentation; TRL's tags leave it out
)
GLM = Model(
    (
        *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>", *TAGS),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    # GLM-4 repeats its header between an answer's text and a call
    re.compile(r"<\|assistant\|>(?P<t>.*?(?:<\|user\|>|<\|observation\|>|<\|system\|>|\Z))", re.DOTALL),
    eos="<|endoftext|>",
)
HARMONY = Model(
    ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>", "<|constrain|>", "<|endoftext|>"),
    re.compile(r"<\|start\|>assistant(?P<t>.*?(?:<\|return\|>|<\|call\|>|<\|end\|>(?!<\|start\|>assistant)))", re.DOTALL),
    "<|startoftext|>",
    "<|return|>",
)
IDEFICS = Model(
    ("<|begin_of_text|>", "<end_of_utterance>", "<image>"),
    _until("Assistant:", "<end_of_utterance>"),
    "<|begin_of_text|>",
    "<end_of_utterance>",
    "<image>",
)
LLAMA3 = Model(
    ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"),
    _until(r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n", "<|eot_id|>"),
    "<|begin_of_text|>",
    "<|eot_id|>",
)
LLAVA = Model(("<image>",), _until(r"\[/INST\]", "</s>"), "<s>", "</s>", "<image>")
MISTRAL = Model(
    tuple(f"[{slash}{name}]" for name in ("INST", "AVAILABLE_TOOLS", "TOOL_RESULTS", "TOOL_CALLS") for slash in ("", "/")),
    # results stand together, so that only after the last of them comes an answer
    _until(r"\[/INST\]|\[/TOOL_RESULTS\](?!\[TOOL_RESULTS\])", "</s>"),
    "<s>",
    "</s>",
)
PHI = Model(
    ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    _until(r"<\|assistant\|>\n", "<|end|>"),
    eos="<|endoftext|>",
    debated=("<|endoftext|>",),  # TRL trains what ends the conversation, after the stop of its last answer
)
EOS_ONLY = {"bos": "<s>", "eos": "</s>"}

MODELS: Mapping[str, Model] = {
    "cohere": COHERE,
    "cohere2": COHERE2,
    "deepseekv3": DEEPSEEK,
    "diffusion_gemma": GEMMA4,
    "gemma": GEMMA,
    "gemma3": GEMMA,
    "glm4moe": GLM,
    "gptoss": HARMONY,
    "idefics3": IDEFICS,
    "lfm2": LFM,
    "lfm2_2_5": LFM,
    "llama3": LLAMA3,
    "llama3_1": LLAMA3,
    "llama3_2": LLAMA3,
    "llava_next": LLAVA,
    "nemotron_3_nano": NEMOTRON,
    "nemotron_3_super": NEMOTRON,
    "nemotron_3_ultra": NEMOTRON,
    "phi3": PHI,
    "phi3_5": PHI,
    "qwen2_5": CHATML,
    "qwen2_5_vl": QWEN_VL,
    "qwen3": CHATML,
    "qwen3_5_nothink": NO_THINKING,
    "qwen3_5_think": THINKING,
    "qwen3_6": THINKING,
    "qwen3_instruct_2507": CHATML,
    "qwen3_vl": QWEN_VL,
}
"""TRL's templates by file name; a ``_training`` variant is its original's model."""

NAMED: Mapping[str, Model] = {
    "alpaca": Model((), _until("### Response:\n", "</s>"), **EOS_ONLY),
    "chatml": CHATML,
    "deepseek-r1": DEEPSEEK,
    "default": Model((), _until("\nAssistant:", "</s>"), **EOS_ONLY),
    "gemma": GEMMA,
    "glm4": GLM,
    "llama2": Model((), _until(r"\[/INST\]", "</s>"), **EOS_ONLY),
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "phi": PHI,
    "plain": Model((), _until(r"<\|assistant\|>\n", "</s>"), **EOS_ONLY),
    "qwen": CHATML,
    "qwen3": CHATML,
    "vicuna": Model((), _until("ASSISTANT:", "</s>"), **EOS_ONLY),
}
"""The shipped templates."""
