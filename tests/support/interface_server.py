"""The whole interface as a process of its own, on a vault in memory: what tools from outside are
pointed at.

``python -m tests.support.interface_server``: prints its address and the token to send, and serves
until it is ended.
"""

import asyncio
import tempfile
from pathlib import Path

from tests.support.examples import CONTACT, KEPT, RECORDS
from tests.support.world import world


async def serve() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with world(Path(folder), "sqlite") as here:
            await here.declare("contact", CONTACT)
            for record in RECORDS:
                await here.client("POST", "/api/models/contact", json=record)
            for record in KEPT:
                await here.client("POST", "/api/records", json=record)
            print(here.client.address, "chief", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
