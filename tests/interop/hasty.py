"""muxway as its users have it, but for how long it gathers changes of lists: what waits for each need not wait long."""

from __future__ import annotations

import runpy

from muxway.exchange import change_notices

change_notices.QUIET = change_notices.QUIET_STREAM = 0.1  # type: ignore[misc]
runpy.run_module("muxway", run_name="__main__", alter_sys=True)
