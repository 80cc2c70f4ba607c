"""Towards the clients: transports, and the sessions behind them that speak MCP."""
