"""The middle: what becomes of a request between a client and a server."""
