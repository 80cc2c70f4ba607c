"""The world without MCP: pipes, HTTP, processes, clocks of the loop."""
