"""Options of a family that several of its assets depend on."""

PUBLISHED = ("tokenizer", "tokenizer_revision", "tokenizer_loader", "tokenizer_class")
TOKENIZER = (*PUBLISHED, "pad_vocab_to")
REASONING = ("reasoning", "reasoning_tags")
TEMPLATE = (*TOKENIZER, "template", "template_options", "training_template")
IMAGES = ("image_token", "image_patches", "image_tokens")
