"""Small stores of chats with every template: the shipped ones, some of a test's own, and TRL's where they are at hand. A tokenizer has the control
tokens of all of them, so that it is opened once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets.text.load_template import named_templates
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, jsonl, minimal, refusals, workspace_in
from prep_assets_tests.masks.bound import CONTROL
from prep_assets_tests.masks.trl import CONTROL as WRITTEN

LOOKS_BACK = "{% if 'please' in messages[-2].content %} :){% endif %}"
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
OWN: Mapping[str, str] = {
    # it refuses a question alone, so that nothing says how an answer begins but the render of the whole
    "looks back": CHATML.replace("{{ m.content }}", "{{ m.content }}" + LOOKS_BACK) + PROMPT,
    "looks back, no prompt": CHATML.replace("{{ m.content }}", "{{ m.content }}" + LOOKS_BACK),
    "looks back where it can": CHATML.replace("{{ m.content }}", "{{ m.content }}{% if messages[1:] %}" + LOOKS_BACK + "{% endif %}")
    + PROMPT,
    "no header": "{% for m in messages %}{{ '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else ' ' + m.content + '</s> ' }}{% endfor %}",
    "no header, no space": "{% for m in messages %}{{ '[INST] ' + m.content + '[/INST]' if m.role == 'user' else m.content + '</s> ' }}{% endfor %}",
}
WORDS = "user assistant system Hi pad it One Two Three And please What is said answer Well"


def trl(real_data: Path) -> dict[str, str]:
    """TRL's templates."""
    return {path.stem: path.read_text("utf-8") for path in sorted((real_data / "chat_templates" / "trl").glob("*.jinja"))}


def _control() -> list[str]:
    named = os.environ.get("PREP_ASSETS_TEST_DATA")
    sources = [*OWN.values(), *named_templates().values(), *(trl(Path(named)).values() if named else ())]
    return sorted(
        {*(token for source in sources for token in WRITTEN.findall(source)), *(each for own in CONTROL.values() for each in own)}
    )


def tokenizer(kind: str, folder: Path) -> Path:
    """A tokenizer with all control tokens: the shipped one, ``bytes``, or one of SentencePiece's kind, in which spaces stick together. That puts a space
    of its own before the first word of a row (``first``), or before whatever follows a control token (``always``, and ``prepended``, as Llama 2's)."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json") if kind == "bytes" else Tokenizer.from_str(json.dumps(_spaces(kind)))
    backend.add_special_tokens(["<s>", "</s>", *_control()])
    folder.mkdir(parents=True)
    backend.save(str(folder / "tokenizer.json"))
    special = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(special), "utf-8")
    return folder


def _spaces(kind: str) -> dict[str, Any]:
    """Bytes for all that is no letter, pieces of several spaces, and words with the space before them."""
    merges = [("▁", "▁"), ("▁▁", "▁▁"), *((f"▁{word[:at]}", word[at]) for word in WORDS.split() for at in range(len(word)))]
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127)), *map("".join, merges)]
    prepended = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": kind, "split": False}
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": prepended} if kind == "prepended" else None,
        "pre_tokenizer": None if kind == "prepended" else metaspace,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [*decoders, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "fuse_unk": True,
            "unk_token": "<unk>",
            "vocab": {piece: number for number, piece in enumerate(dict.fromkeys(pieces))},
            "merges": list(dict.fromkeys(map(" ".join, merges))),
        },
    }


def outcome(folder: Path, source: str, tokens: Path, rows: Sequence[Any], **options: Any) -> Published:
    """A store of `rows`, in whose quarantine all that are not kept have a reason.

    Raises:
        CheckFailed: it is blocked, because a check does not hold.
    """
    workspace = workspace_of(folder, source, tokens, {"d": (rows, {})}, **options)
    store = build(workspace, "sft_tokens", "d")
    found = refusals(store)
    assert all(each.detail for each in found) and store.manifest.counts["kept"] + len(found) == len(rows)
    return store


def workspace_of(folder: Path, source: str, tokens: Path, rows: Mapping[str, tuple[Sequence[Any], Any]], **options: Any) -> Workspace:
    """A workspace with the raw store of each domain, and with the template's certificate; of each domain its rows and what it says beside them."""
    folder.mkdir(parents=True)
    domains = {name: domain(jsonl(folder / f"{name}.jsonl", listed), "messages", **more) for name, (listed, more) in rows.items()}
    configuration = minimal("sft", domains, template="own.jinja", **options)
    configuration["sft"]["tokenizer"] = str(tokens)
    workspace = workspace_in(folder, configuration)
    (workspace.configs / "own.jinja").write_text(source, "utf-8")
    build(workspace, "sft_template")
    return workspace
