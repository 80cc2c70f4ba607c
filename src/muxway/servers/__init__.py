"""Towards the servers: links, the channels they run over, and the child processes."""
