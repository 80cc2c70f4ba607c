"""Towards the servers: connections, the transports they run over, and the child processes."""
