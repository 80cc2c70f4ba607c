"""Access rules: who may use what."""
