"""Bytes towards clients."""
