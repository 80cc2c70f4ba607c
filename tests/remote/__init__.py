"""Servers reached by URL: every way they speak, and every way they fail."""
