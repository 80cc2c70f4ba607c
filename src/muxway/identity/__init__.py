"""Who calls: access tokens, API keys, and what clients are told to get them."""
