"""Bytes towards servers."""
