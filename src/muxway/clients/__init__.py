"""Towards the side that calls us: doors, and the endpoint behind them that speaks MCP."""
