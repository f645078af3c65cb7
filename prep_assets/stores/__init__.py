"""Bytes on disk: published, versioned stores and the formats inside them."""
