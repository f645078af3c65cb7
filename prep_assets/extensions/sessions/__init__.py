"""Sessions of coding agents as chats: Claude Code, Codex, Pi and Hermes."""
