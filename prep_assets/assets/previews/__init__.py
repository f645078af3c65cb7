"""Previews: rows as a page of Markdown."""
