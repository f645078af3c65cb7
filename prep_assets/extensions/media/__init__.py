"""Images, audio and video in records: their files, which are hashed and never decoded, and the tokens that stand for them."""
