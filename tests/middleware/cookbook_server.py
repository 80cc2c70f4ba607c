"""The two servers of the cookbook that nobody publishes: customers, and a weather service that is slow."""

from __future__ import annotations

import itertools
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from muxway.demo.serving import DemoServer, DemoTool, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 0.5
_calls = itertools.count(1)


def _customer(arguments: Mapping[str, Any], _: Run) -> dict[str, Any]:
    return {
        "name": "Ada",
        "number": "CUST-004711",
        "email": "ada@example.org",
        "card": "4111 1111 1111 1111",
        "debug": f"GET /customers/{arguments['id']} with the key {os.environ['CRM_TOKEN']}",
    }


def _forecast(arguments: Mapping[str, Any], _: Run) -> dict[str, Any]:
    time.sleep(SECONDS)
    return {"city": arguments["city"], "call": next(_calls)}


SERVERS = {
    "crm-server": {"customer": DemoTool("Find a customer.", {"id": {"type": "integer"}}, ("id",), _customer)},
    "weather-server": {"forecast": DemoTool("Ask the sky.", {"city": {"type": "string"}}, ("city",), _forecast)},
}

if __name__ == "__main__":
    DemoServer(sys.argv[1], "2025-06-18", SERVERS[sys.argv[1]]).serve()
