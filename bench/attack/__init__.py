"""Attacks on a node of its own: what others notice of them, and what the node keeps."""
