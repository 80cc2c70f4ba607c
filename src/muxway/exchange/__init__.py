"""The middle: what becomes of a request between a door and a link."""
