"""A program under load for some seconds, with Pyroscope's agent: pyroscope_agent.py URL."""

import sys
import time

import pyroscope

pyroscope.configure(
    application_name="shop.python",
    server_address=sys.argv[1],
    sample_rate=100,
    tags={"region": "eu"},
    tenant_id="team-a",
)
end = time.time() + 3
with pyroscope.tag_wrapper({"route": "/cart"}):
    while time.time() < end:
        sum(number * number for number in range(20000))
pyroscope.shutdown()
