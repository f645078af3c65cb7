"""sentence-transformers and FlagEmbedding on our files: their own data sets and collators give the texts of the store, and a trainer takes steps with them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.registry import export, exports
from prep_assets_tests.extensions.exports.conftest import write_lines
from prep_assets_tests.extensions.exports.readers import flag_embedding, reader

pytestmark = pytest.mark.readers
TOKENIZER = Path(__file__).resolve().parents[3] / "configs" / "tokenizer"
ROWS = [
    {
        "query": f"What is {n} + 1, é?",
        "positives": [f"It is {n + 1}.", f'"{n + 1}",\nof course.'][: 1 + n % 2],
        "negatives": [f"It is {n}.", f"Blue, {n} times.", "No idea."],
    }
    for n in range(50)
]
SCORED = [{**row, "positive_scores": [1.0] * len(row["positives"]), "negative_scores": [0.5, 0.25, 0.0]} for row in ROWS]


def tokenizer() -> Any:
    """Without its chat template, in which sentence-transformers puts every text where there is one."""
    from transformers import PreTrainedTokenizerFast

    found = PreTrainedTokenizerFast.from_pretrained(TOKENIZER, pad_token="<|endoftext|>")
    found.chat_template = None
    return found


def written(folder: Path, rows: list[dict[str, Any]], format: str, **options: Any) -> Path:
    return export(write_lines(folder / "lines", "contrastive", rows), format, folder / "out", **options)


# -- sentence-transformers ----------------------------------------------------------------------------------------------------------------


def encoder(folder: Path) -> Any:
    """A random encoder of one layer with the sample tokenizer, the same each time."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 4096}
    transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    modules = reader("sentence_transformers.sentence_transformer.modules")
    layer = modules.Transformer(str(folder))
    return reader("sentence_transformers").SentenceTransformer(modules=[layer, modules.Pooling(16)], device="cpu")


def test_the_trainer_of_sentence_transformers_takes_our_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the page, as they stand there; every text of every column arrives, in the order of the columns; weights move."""
    st = reader("sentence_transformers")
    out, model = written(tmp_path, ROWS, "sentence_transformers", negatives=2), encoder(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    losses = reader("sentence_transformers.sentence_transformer.losses")
    *first, last = exports()["sentence_transformers"].opens[""]
    names: dict[str, Any] = {
        "model": model,
        "MultipleNegativesRankingLoss": losses.MultipleNegativesRankingLoss,
        "SentenceTransformerTrainer": lambda **given: st.SentenceTransformerTrainer(args=settings(st, tmp_path), **given),
    }
    exec("\n".join(first).format(folder=out, split="train"), names)
    trainer = eval(last, names)
    columns = ["anchor", "positive", "negative_1", "negative_2"]
    assert trainer.train_dataset.column_names == columns
    words = tokenizer()
    found = []
    for batch in trainer.get_train_dataloader():
        texts = [words.batch_decode(batch[f"{column}_input_ids"], skip_special_tokens=True) for column in columns]
        found += list(zip(*texts, strict=True))
    expected = [(row["query"], positive, *row["negatives"][:2]) for row in ROWS for positive in row["positives"]]
    assert sorted(found) == sorted(expected)
    before = model[0].model.embeddings.word_embeddings.weight.detach().clone()
    trainer.train()
    assert not before.equal(model[0].model.embeddings.word_embeddings.weight)


def settings(st: Any, folder: Path) -> Any:
    """Two steps on the CPU."""
    common = {"max_steps": 2, "per_device_train_batch_size": 8, "use_cpu": True, "report_to": "none", "save_strategy": "no"}
    return st.SentenceTransformerTrainingArguments(output_dir=str(folder / "run"), dataloader_pin_memory=False, **common)


def test_a_loss_of_whole_lists_takes_ours(tmp_path: Path) -> None:
    """From scores to a loss of Plackett and Luce: every list arrives in the order of its rewards, and the loss is that of the formula."""
    import torch
    import transformers

    from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

    sentences = reader("sentence_transformers")
    rows = [{"prompt": f"What is {n}?", "responses": ["No.", f"It is {n}.", f"{n}!"], "rewards": [-1.0, 2.0 + n, 0.5]} for n in range(20)]
    scored = domain(jsonl(tmp_path / "scored.jsonl", rows), "group_list")
    built = build(workspace_in(tmp_path, minimal("preference", {"scored": scored}, test_fraction=0)), "preferences")
    folder = export(built, "sentence_transformers", tmp_path / "out", stream="ranked")
    data = reader("datasets").load_dataset(
        "parquet", data_files=f"{folder}/train.parquet", split="train", cache_dir=str(tmp_path / "cache")
    )
    assert data.column_names == ["query", "docs", "labels"]
    by_query = {row["query"]: row for row in data}
    for n, row in enumerate(rows):
        assert by_query[row["prompt"]]["docs"] == [f"It is {n}.", f"{n}!", "No."]
        assert by_query[row["prompt"]]["labels"] == [2.0 + n, 0.5, -1.0]
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 4096,
        "num_labels": 1,
    }
    transformers.BertForSequenceClassification(transformers.BertConfig(**sizes)).save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    model = sentences.CrossEncoder(str(tmp_path / "model"), device="cpu")
    losses = reader("sentence_transformers.cross_encoder.losses")
    loss = losses.PListMLELoss(model, lambda_weight=None)
    model.eval()
    row = data[0]
    with torch.no_grad():
        found = loss([[row["query"]], [row["docs"]]], [torch.tensor(row["labels"])])
        scores = model.predict([(row["query"], text) for text in row["docs"]], convert_to_tensor=True, activation_fn=torch.nn.Identity())
    expected = sum(torch.logsumexp(scores[at:], 0) - scores[at] for at in range(3))
    assert float(found) in (pytest.approx(float(expected), rel=1e-3), pytest.approx(float(expected) / 3, rel=1e-3))
    arguments = sentences.CrossEncoderTrainingArguments(
        output_dir=str(tmp_path / "run"), max_steps=2, per_device_train_batch_size=2, use_cpu=True, report_to="none", save_strategy="no"
    )
    before = [each.detach().clone() for each in model.parameters()]
    sentences.CrossEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss).train()
    assert any(not old.equal(new) for old, new in zip(before, model.parameters(), strict=True))


# -- FlagEmbedding ------------------------------------------------------------------------------------------------------------------------


def opened(file: Path, folder: Path, **options: Any) -> Any:
    arguments = flag_embedding("AbsArguments").AbsEmbedderDataArguments(
        train_data=[str(file)], cache_path=str(folder / "cache"), train_group_size=3, **options
    )
    return flag_embedding("AbsDataset").AbsEmbedderTrainDataset(arguments, tokenizer())


@pytest.mark.parametrize("distilled", [False, True])
def test_the_data_set_of_flag_embedding_draws_from_our_rows(tmp_path: Path, distilled: bool) -> None:
    """One positive and two negatives of each row, with the scores of just these; its collator's batch decodes to them."""
    random.seed(0)
    out = written(tmp_path, SCORED if distilled else ROWS, "flag_embedding")
    dataset = opened(out / "train.jsonl", tmp_path, knowledge_distillation=distilled)
    assert len(dataset) == len(ROWS)
    items = [dataset[at] for at in range(len(dataset))]
    for row, (query, (positive, *negatives), scores) in zip(SCORED, items, strict=True):
        assert query == row["query"] and positive in row["positives"]
        assert len(set(negatives)) == 2 and set(negatives) <= set(row["negatives"])
        own = dict(zip(row["negatives"], row["negative_scores"], strict=True))
        assert scores == ([1.0, *(own[each] for each in negatives)] if distilled else None)
    collate = flag_embedding("AbsDataset").AbsEmbedderCollator(tokenizer(), query_max_len=64, passage_max_len=64)
    batch = collate(items)
    decoded = [tokenizer().batch_decode(batch[side]["input_ids"], skip_special_tokens=True) for side in ("queries", "passages")]
    assert decoded == [[query for query, _, _ in items], [text for _, texts, _ in items for text in texts]]


def test_the_instruction_of_a_row_is_its_prompt(tmp_path: Path) -> None:
    """FlagEmbedding reads it only where the trainer is given one too, and takes a row without for one that says None: such rows stop the export."""
    told = [{**row, "instruction": f"Find {n}: "} for n, row in enumerate(ROWS)]
    out = written(tmp_path, told, "flag_embedding")
    dataset = opened(out / "train.jsonl", tmp_path, query_instruction_for_retrieval="Look up: ")
    assert [dataset[at][0] for at in range(3)] == [f"Find {n}: {ROWS[n]['query']}" for n in range(3)]
    assert opened(out / "train.jsonl", tmp_path)[0][0] == ROWS[0]["query"]
    with pytest.raises(ConfigError, match="line 2 lacks an instruction, others do not agree"):
        written(tmp_path / "lines", [told[0], *ROWS[1:]], "flag_embedding")
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text(
        '{"query": "a", "pos": ["b"], "neg": ["c"], "prompt": "Find: "}\n{"query": "d", "pos": ["e"], "neg": ["f"]}\n', "utf-8"
    )
    assert opened(mixed, tmp_path, query_instruction_for_retrieval="Look up: ")[1][0] == "Noned"


def test_its_command_takes_our_options(tmp_path: Path) -> None:
    """The command of the page, read by FlagEmbedding's own parser."""
    from transformers import HfArgumentParser

    out = written(tmp_path, ROWS, "flag_embedding")
    command = " ".join(exports()["flag_embedding"].opens[""]).replace("\\", "")
    words = command.format(folder=out, split="train").split()
    kinds = flag_embedding("AbsArguments")
    parser = HfArgumentParser((kinds.AbsEmbedderModelArguments, kinds.AbsEmbedderDataArguments, kinds.AbsEmbedderTrainingArguments))
    options = words[words.index("FlagEmbedding.finetune.embedder.encoder_only.base") + 1 :]
    model, data, _ = parser.parse_args_into_dataclasses([*options, "--use_cpu"])
    assert (data.train_data, data.train_group_size, model.model_name_or_path) == ([str(out / "train.jsonl")], 8, "MODEL")
