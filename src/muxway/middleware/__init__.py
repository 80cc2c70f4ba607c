"""What may be done in the middle: hooks around every request, the built-in ones, and how they are put together."""
