"""The server: Starlette with uvicorn, a session for each WebSocket."""

import asyncio
import contextlib
import math
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from experiments.data.topics import ALPHABET
from experiments.serve.sessions import Full, Rows, Steps

# Close codes of RFC 6455.
WRONG_MESSAGE, TIMED_OUT, TRY_LATER = 1003, 1008, 1013
MAX_MESSAGE = 64  # bytes; a message is one character
MAX_UNANSWERED = 2048  # bytes that a session may send before its answer, with its pings and pongs
UNREAD = 16_384  # bytes of answers that the system keeps for a session that does not read
PATIENCE = 10.0  # seconds that a session may be silent, or leave an answer unread
TOKENS = {character: token for token, character in enumerate(ALPHABET)}


class Door(H11Protocol):
    """Closes a connection that has not become a session in time, whatever it sends."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(self.config.timeout_keep_alive, self._close_if_still_here)

    def _close_if_still_here(self) -> None:
        if self in self.connections:
            self.transport.abort()


class Session(WebSocketsSansIOProtocol):
    """Cuts off who floods the server, or cannot be told that the session has ended.

    Pings and pongs cost time and reach no application, so they are counted here.
    """

    unanswered = 0

    def data_received(self, data: bytes) -> None:
        self.unanswered += len(data)
        if self.handshake_complete and self.unanswered > MAX_UNANSWERED:
            self.transport.abort()
        else:
            super().data_received(data)

    async def send(self, message: Any) -> None:
        self.unanswered = 0
        if message["type"] == "websocket.close" and not self.writable.is_set():
            self.transport.abort()
        else:
            await super().send(message)


async def texts(websocket: WebSocket) -> AsyncIterator[str | None]:
    """The messages until the end of the session, None for one of bytes."""
    while (message := await websocket.receive())["type"] == "websocket.receive":
        yield message.get("text")


def application(rows: Rows, window: float, patience: float = PATIENCE) -> tuple[Starlette, Steps]:
    """A session sends one character a message and gets float32 logarithms of odds, as bytes."""
    steps = Steps(rows, window)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        running = asyncio.create_task(steps.run())
        yield
        running.cancel()

    async def session(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            with steps.session() as row:
                await converse(websocket, row)
        except Full:
            await websocket.close(TRY_LATER, "every row has a session")
        except TimeoutError:
            await websocket.close(TIMED_OUT, "nothing was sent or read for too long")
        except WebSocketDisconnect:
            pass

    async def converse(websocket: WebSocket, row: int) -> None:
        async with asyncio.timeout(patience) as limit:
            async for message in texts(websocket):
                if message not in TOKENS:
                    await websocket.close(WRONG_MESSAGE, "a message must be one character")
                    return
                answer = await steps.step(row, TOKENS[message])
                await websocket.send_bytes(answer.tobytes())
                limit.reschedule(asyncio.get_running_loop().time() + patience)

    return Starlette(routes=[WebSocketRoute("/", session)], lifespan=lifespan), steps


@contextlib.contextmanager
def serving(rows: Rows, window: float, patience: float = PATIENCE) -> Iterator[tuple[int, Steps]]:
    """The port of a server that runs in a thread, on this machine alone, and its steps."""
    app, steps = application(rows, window, patience)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=Door,
            ws=Session,
            log_level="critical",
            ws_max_size=MAX_MESSAGE,
            ws_per_message_deflate=False,
            timeout_keep_alive=math.ceil(patience),
            ws_ping_interval=patience,
            ws_ping_timeout=patience,
            timeout_graceful_shutdown=2,
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], steps
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
