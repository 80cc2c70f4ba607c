"""The middlewares that come with muxway."""
