"""The wire, without the world: what messages are and mean, in code that never waits, reads a clock or logs."""
