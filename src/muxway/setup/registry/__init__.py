"""The MCP registry: servers by name, as its `/v0.1` API describes them (schema 2025-12-11).

    asking     requests to a registry: bounded, and never believed further than they can be checked
    records    what a registry says of a server
    mirror     what it said, kept for searching offline
    questions  what a record wants to know of its user, and what becomes of the answers
    recipes ─► launching, bundles    a record as an entry of the config: a package's command, a bundle, an address

Everything a registry says was written by strangers. What is not exactly as it should be is refused.
"""
