"""Every client with every server: what crosses muxway, as it is and converted. `docs/compatibility.md` is made of it.

    .venv/bin/python -m tests.compatibility

`subjects` is the place to add something: one function, and a tool for the server if it needs one.
"""
