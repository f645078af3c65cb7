"""AstrAI: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/astrai.md."""

READ_BY = "AstrAI"
LINES = {
    "PackedStore": (
        "from astrai.dataset import DatasetFactory",
        'dataset = DatasetFactory.load("sft", "{folder}", window_size={row_len})',
        'dataset[0]["input_ids"]  # with loss_mask, position_ids: a row of the table',
    ),
    "TokenStore": (
        "from astrai.dataset import DatasetFactory",
        'dataset = DatasetFactory.load("seq", "{folder}", window_size=2048)  # "sft" where the stream has a mask',
        'dataset[0]["input_ids"]',
    ),
    "Pairs": (
        "from astrai.dataset import DatasetFactory",
        'dataset = DatasetFactory.load("dpo", "{folder}", window_size=2048)',
        'dataset[0]["chosen"]  # with chosen_mask, rejected, rejected_mask',
    ),
    "GroupStore": (
        "from prep_assets.training import DatasetFactory  # AstrAI's own reader does not tell responses apart",
        'dataset = DatasetFactory.load("grpo", "{folder}")',
        'dataset[0]["responses"]  # with prompts, masks, rewards',
    ),
}
