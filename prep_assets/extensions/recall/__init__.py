"""Recalls: which stores a version or option made that is now known to be wrong, set aside with all that was made from them."""
