"""Composed and compound tools: the gateway's own, made of its servers'."""
