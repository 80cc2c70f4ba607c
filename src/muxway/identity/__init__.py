"""Who muxway is towards servers: logins, tokens, and where they are kept."""
