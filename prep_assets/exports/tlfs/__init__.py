"""train-llm-from-scratch: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/tlfs.md."""

READ_BY = "train-llm-from-scratch"
LINES = {
    "Lines": ("import json", 'rows = [json.loads(line) for line in open("{folder}/{file}.jsonl")]', 'rows[0]["prompt"]'),
    "": ("import h5py", 'file = h5py.File("{folder}/{file}.h5")', 'file["tokens"]'),
}
