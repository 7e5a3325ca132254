"""The server: sessions are equal to themselves alone, whoever else is there."""

import asyncio

import jax
import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs uvicorn")
pytest.importorskip("starlette", reason="needs starlette")
websockets = pytest.importorskip("websockets", reason="needs websockets")

from experiments.data.topics import ALPHABET  # noqa: E402
from experiments.serve import visitors  # noqa: E402
from experiments.serve.config import Config  # noqa: E402
from experiments.serve.measure import Results, Served, alone  # noqa: E402
from experiments.serve.model import network, train  # noqa: E402
from experiments.serve.report import report  # noqa: E402
from experiments.serve.server import TIMED_OUT, TRY_LATER, WRONG_MESSAGE, serving  # noqa: E402
from experiments.serve.sessions import Full, Rows, Steps  # noqa: E402

MODEL = network(4)
PARAMS = MODEL.init(jax.random.key(0), len(ALPHABET))
TEXTS = ["for i in", "while Tr", "return 1", "import j"]


@pytest.fixture(scope="module")
def server():
    """A server with six rows and little patience."""
    with serving(Rows(MODEL, PARAMS, 6), window=0.001, patience=1.0) as (port, steps):
        yield port, steps


def close_to_alone(visits, texts):
    assert [one.error for one in visits] == [""] * len(texts)
    answers = np.stack([one.answers for one in visits])
    np.testing.assert_allclose(answers, alone(MODEL, PARAMS, texts), atol=1e-5)


def test_sessions_get_what_they_get_alone_and_rows_are_used_again(server):
    port, _ = server
    for texts in (TEXTS, TEXTS[::-1]):
        close_to_alone(visitors.visit(port, texts).visits, texts)


def test_hostile_visitors_harm_nobody(server):
    port, _ = server
    long = [text * 6 for text in TEXTS]

    async def with_pests():
        pests = [visitors.sends_garbage(port), visitors.leaves_in_the_middle(port)]
        running = [asyncio.create_task(pest) for pest in pests]
        await asyncio.sleep(0.05)
        found = await visitors._visit(port, long[:3], hostile=0)
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return found

    close_to_alone(asyncio.run(with_pests()).visits, long[:3])
    # All rows are free again.
    close_to_alone(visitors.visit(port, TEXTS).visits, TEXTS)


@pytest.mark.parametrize("kind", [visitors.never_reads, visitors.floods_with_pings])
def test_who_floods_or_never_reads_is_cut_off(server, kind):
    port, steps = server

    async def visit():
        pest = asyncio.create_task(kind(port))
        await asyncio.sleep(0.02)
        found = await visitors._visit(port, TEXTS, hostile=0)
        await asyncio.wait_for(pest, 20)
        return found

    close_to_alone(asyncio.run(visit()).visits, TEXTS)
    assert max(steps.sizes) <= 6


def closed_with(port, *messages):
    async def visit():
        async with websockets.asyncio.client.connect(f"ws://127.0.0.1:{port}/") as connection:
            try:
                for message in messages:
                    await connection.send(message)
                await asyncio.wait_for(connection.recv(), 5)
            except websockets.exceptions.ConnectionClosed as closed:
                return closed.rcvd.code
        return None

    return asyncio.run(visit())


def test_wrong_messages_and_silence_close_the_session(server):
    port, _ = server
    assert closed_with(port, "a") is None
    for message in ("ab", "", "\u2603", b"a", b"\xff\x00"):
        assert closed_with(port, message) == WRONG_MESSAGE
    assert closed_with(port, "x" * 1000) == 1009
    assert closed_with(port) == TIMED_OUT


def test_a_connection_that_never_becomes_a_session_is_closed(server):
    port, _ = server

    async def read(*sent):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.writelines(sent)
        try:
            return await asyncio.wait_for(reader.read(), 5)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def visit():
        return await asyncio.gather(read(b""), read(b"GET / HTTP/1.1\r\nHost: "))

    assert asyncio.run(visit()) == [b"", b""]


def test_a_full_server_says_so_and_recovers(server):
    port, _ = server

    async def crowd():
        connect = websockets.asyncio.client.connect
        inside = [await connect(f"ws://127.0.0.1:{port}/") for _ in range(6)]
        for one in inside:
            await one.send("a")
            await one.recv()
        late = await connect(f"ws://127.0.0.1:{port}/")
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            await late.recv()
        for one in inside:
            await one.close()
        return closed.value.rcvd.code

    assert asyncio.run(crowd()) == TRY_LATER
    close_to_alone(visitors.visit(port, TEXTS).visits, TEXTS)


def test_a_row_that_changes_hands_begins_anew():
    """A token that its session left behind is not taken for the first of the next one."""
    rows = Rows(MODEL, PARAMS, 1)
    row = rows.enter()
    with pytest.raises(Full):
        rows.enter()
    first = rows.run(rows.prepare({row: 3}))[row]
    assert (rows.run(rows.prepare({row: 3}))[row] != first).any()
    rows.leave(row)
    assert rows.enter() == row
    assert (rows.run(rows.prepare({}))[row] == 0).all()
    np.testing.assert_array_equal(rows.run(rows.prepare({row: 3}))[row], first)

    async def left_behind():
        steps = Steps(rows, window=0.0)
        rows.leave(row)
        with steps.session() as one:
            token = asyncio.ensure_future(steps.step(one, 5))
            await asyncio.sleep(0)
        with steps.session() as one:
            running = asyncio.create_task(steps.run())
            answer = await steps.step(one, 3)
            running.cancel()
            token.cancel()
        return answer

    np.testing.assert_array_equal(asyncio.run(left_behind()), first)


def test_training_and_the_report(tmp_path):
    config = Config(updates=3, width=4, sessions=(2,))
    model, params, bits = train(config, ["some text to learn from. " * 20] * 16)
    assert model == network(4) and 0 < bits < 10
    run = Served(2, 0, np.array([0.1, 0.2]), 1.0, np.array([1, 2]), 1e-7, ())
    broken = run._replace(errors=("closed",), difference=float("nan"), hostile=8)
    written = report(config, Results(bits, 0.01, (run,), broken))
    assert [one.word for one in written.verdicts] == ["pass", "pass", "FAIL"]
    assert report(config, Results()).verdicts[0].word == "not run"
