"""Who is who: the tokens and keys that callers show us, and the logins with which muxway comes to servers."""
