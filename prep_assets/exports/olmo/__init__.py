"""OLMo-core's numpy files: headerless token ids, a label mask and document borders, in parts of at most 1 GB."""
