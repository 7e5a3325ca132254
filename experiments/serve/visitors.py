"""Visitors of the server: sessions that count, and hostile ones. Nothing here needs jax."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

TIMEOUT = 60.0  # seconds that the whole visit of a session may take for each hundred characters


class Visit(NamedTuple):
    """What a session saw."""

    answers: np.ndarray  # float32 [T, V]
    seconds: np.ndarray  # from sending a character to its answer, [T]
    error: str  # empty if there was none


class Visited(NamedTuple):
    """What all sessions saw together."""

    visits: list[Visit]
    seconds: float  # from the first character to the last answer


def visit(port: int, texts: Sequence[str], hostile: int = 0) -> Visited:
    """A session for each text at once, and beside them hostile ones of each kind."""
    return asyncio.run(_visit(port, texts, hostile))


async def _visit(port, texts, hostile):
    pests = [asyncio.create_task(kind(port)) for kind in PESTS for _ in range(hostile)]
    connections = [await connect(_address(port)) for _ in texts]
    start = time.perf_counter()
    limit = TIMEOUT * max(1, max(map(len, texts)) / 100)
    visits = await asyncio.gather(
        *(asyncio.wait_for(_session(*one), limit) for one in zip(connections, texts, strict=True))
    )
    seconds = time.perf_counter() - start
    for pest in pests:
        pest.cancel()
    await asyncio.gather(*pests, return_exceptions=True)
    return Visited(visits, seconds)


def _address(port):
    return f"ws://127.0.0.1:{port}/"


async def _session(connection, text):
    answers, seconds, error = [], [], ""
    try:
        async with connection:
            for character in text:
                start = time.perf_counter()
                await connection.send(character)
                answers.append(np.frombuffer(await connection.recv(), np.float32))
                seconds.append(time.perf_counter() - start)
    except (ConnectionClosed, OSError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    return Visit(np.array(answers), np.array(seconds), error)


async def sends_garbage(port):
    """Bytes, long messages and characters that are none, again and again."""
    for message in [b"\xff\x00", "many characters", "\u2603", "x" * 10_000] * 5:
        with contextlib.suppress(ConnectionClosed, OSError):
            async with connect(_address(port)) as connection:
                await connection.send(message)
                await connection.recv()


async def leaves_in_the_middle(port):
    """Sends a character and cuts the line before the answer, again and again."""
    for _ in range(20):
        connection = await connect(_address(port))
        await connection.send("a")
        connection.transport.abort()
        await asyncio.sleep(0.01)


async def never_reads(port):
    """Sends one character after another, and reads no answer."""
    # A masked frame of text with the character "a", under a mask of zeros.
    await _speaks_only(port, b"\x81\x81\x00\x00\x00\x00a", pause=0.005)


async def floods_with_pings(port):
    """Sends pings as fast as it can, whenever it is let in."""
    for _ in range(20):
        await _speaks_only(port, b"\x89\x80\x00\x00\x00\x00" * 20_000, pause=0.0)


async def _speaks_only(port, frames, pause):
    """Sends until the line is cut, with little room for what comes back."""
    loop = asyncio.get_running_loop()
    request = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
    request += "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    with socket.socket() as line, contextlib.suppress(OSError):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.setblocking(False)
        await loop.sock_connect(line, ("127.0.0.1", port))
        await loop.sock_sendall(line, (request + "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        await loop.sock_recv(line, 1)  # the session has begun
        while True:
            await loop.sock_sendall(line, frames)
            await asyncio.sleep(pause)


async def never_speaks(port):
    """Connects and is silent until it is shown the door."""
    with contextlib.suppress(ConnectionClosed, OSError):
        async with connect(_address(port)) as connection:
            await connection.recv()


PESTS = (sends_garbage, leaves_in_the_middle, never_reads, never_speaks, floods_with_pings)
