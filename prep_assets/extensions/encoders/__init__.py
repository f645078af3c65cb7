"""Formats that have no chat template, as chat templates: code that writes chats, compared with a second implementation or with the vendor's own chats."""
