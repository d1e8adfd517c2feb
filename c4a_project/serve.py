"""Serve everything from one ASGI process on a listening socket that the supervisor opened: `python -m c4a_project.serve 3`.

The supervisor keeps the socket, so no port is lost or taken while this process is started again; callers only wait.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

import uvicorn

GRACEFUL_SECONDS: Final = 3
KEEP_ALIVE_SECONDS: Final = 20


def main(descriptor: int) -> None:
    """Serve on the inherited socket `descriptor` until SIGTERM."""
    config = uvicorn.Config(
        "c4a_project.asgi:application",
        lifespan="off",  # Django has none
        proxy_headers=False,  # loopback only: nobody in front whose headers could be believed
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    with socket.socket(fileno=descriptor) as listener:
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]))
