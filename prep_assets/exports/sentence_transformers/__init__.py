"""sentence-transformers: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/sentence_transformers.md."""

READ_BY = "sentence-transformers"
LINES = {
    "": (
        "from datasets import load_dataset",
        'dataset = load_dataset("parquet", data_files="{folder}/{split}.parquet", split="train")',
        "SentenceTransformerTrainer(model=model, train_dataset=dataset, loss=MultipleNegativesRankingLoss(model))",
    )
}
