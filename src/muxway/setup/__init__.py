"""From the servers in everybody's clients to one config, and from the clients to muxway, without a byte lost.

    clients     which clients there are, where their files are, what an entry looks like in each
    splicing ─► json_text, toml_text, yaml_text    one entry put into, or taken out of, text that otherwise stays
    files       reading, backing up and replacing files that belong to others
    connecting  the entry of muxway in a client: put in, taken out again, remembered in between
    importing   the servers of many files as entries of one
    env_files, stored_secrets    secrets out of an entry: into a file beside the config, or into the sealed store
    packages    the exact version of a package, and the command that runs it

Nothing here prints or asks: `cli/verbs` does.
"""
