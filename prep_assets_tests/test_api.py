"""One chat as text, and as what a trainer reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

import prep_assets as pa
from prep_assets.errors import Refused
from prep_assets_tests.graph.workspaces import TOKENIZER

MESSAGES = [{"role": "user", "content": "Hi <turn>"}, {"role": "assistant", "content": " Hello!"}]
SOURCE = "{% for m in messages %}<turn>{{ m.role }}: {{ m.content }}{{ end }}{% endfor %}{% if add_generation_prompt %}<turn>assistant: {% endif %}"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A tokenizer without a template, with a token that is not special."""
    folder = tmp_path / "bare"
    shutil.copytree(TOKENIZER, folder)
    for file in folder.glob("chat_template*"):
        file.unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({key: value for key, value in config.items() if key != "chat_template"}), "utf-8"
    )
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens(["<turn>"])
    backend.save(str(folder / "tokenizer.json"))
    (tmp_path / "own.jinja").write_text(SOURCE, "utf-8")
    return folder


def test_what_is_rendered_is_all_that_is_needed(bare: Path, tmp_path: Path) -> None:
    """A tokenizer without a template needs no second word about the one that the chat was rendered with."""
    rendered = pa.render(MESSAGES, tokenizer=bare, template=str(tmp_path / "own.jinja"), options={"end": "<|im_end|>"})
    assert rendered.text == "<turn>user: Hi <turn><|im_end|><turn>assistant:  Hello!<|im_end|>"
    backend = Tokenizer.from_file(str(bare / "tokenizer.json"))
    turn, end = backend.token_to_id("<turn>"), backend.token_to_id("<|im_end|>")

    def ids(text: str) -> list[int]:
        backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
        return list(backend.encode(text, add_special_tokens=False).ids)

    answer = ids("assistant:  Hello!")
    wanted = [turn, *ids("user: Hi <turn>"), end, turn, *answer, end]
    header = len(ids("assistant: "))
    found = pa.encode(rendered)
    assert found.ids.tolist() == wanted and found.ids.dtype == np.int64
    trained = [0] * (len(wanted) - 1 - len(answer) + header) + [1] * (len(answer) - header) + [1]
    assert found.loss_mask.tolist() == trained and found.loss_mask.dtype == np.float32
    shutil.rmtree(bare)
    assert pa.encode(rendered).ids.tolist() == wanted, "nothing is opened again"


def test_how_it_is_masked_is_asked_for_when_it_is_encoded() -> None:
    rendered = pa.render(MESSAGES, tokenizer=TOKENIZER)
    plain, last, user = (
        pa.encode(rendered),
        pa.encode(rendered, train_on_eos="none"),
        pa.encode(rendered, mask={"user": "train", "assistant": "mask"}),
    )
    assert plain.loss_mask.sum() == last.loss_mask.sum() + 1
    assert not (plain.loss_mask * user.loss_mask).any() and user.loss_mask.any()
    with pytest.raises(Refused, match="max_seq_len is 3"):
        pa.encode(rendered, max_seq_len=3)
