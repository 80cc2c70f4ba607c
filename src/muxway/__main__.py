"""`python -m muxway`: the same as the `muxway` command."""

from muxway.cli import main

if __name__ == "__main__":
    main()
