"""verl: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/verl.md."""

READ_BY = "verl"
LINES = {
    "": (
        'data.train_files="{folder}/{split}.parquet"',
        "data.prompt_key=prompt  # data.messages_key=messages for SFT",
        "data.max_prompt_length=1024",
    )
}
