"""Sessions as rows of one batched carry, and the steps that they make together."""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrnn as jr


class Full(Exception):
    """Every row has a session."""


class Step(NamedTuple):
    """What a batched step reads, a place for each row."""

    tokens: np.ndarray  # int32 [R]
    present: np.ndarray  # bool [R], whether the row sent a token
    new: np.ndarray  # bool [R], whether it is the first of its session


class Rows:
    """A batch of fixed size, in which a session has a row from its start to its end.

    A step takes the tokens of those who sent one: the others are masked, so their carry waits, and
    the first step of a session is a reset, so nothing is left of who had the row before.
    """

    def __init__(self, model: jr.Model, params: Any, num_rows: int):
        """Compiles the step, so that the first session does not wait for it."""
        self._params = params
        self._free = list(range(num_rows))
        self._is_new = np.zeros(num_rows, bool)
        self._carry = model.initial_carry(params, (num_rows,))

        def tick(params, carry, step):
            return jr.step(model, params, carry, step.tokens, mask=step.present, reset=step.new)

        self._tick = jax.jit(tick, donate_argnums=1)
        self.run(self.prepare({}))

    def enter(self) -> int:
        """A row for a new session.

        Raises:
            Full: There is none.
        """
        if not self._free:
            raise Full
        row = self._free.pop()
        self._is_new[row] = True
        return row

    def leave(self, row: int) -> None:
        """Gives the row back."""
        self._free.append(row)

    def prepare(self, tokens: dict[int, int]) -> Step:
        """The next step of the rows that sent a token."""
        step = Step(*(np.zeros(len(self._is_new), dtype) for dtype in (np.int32, bool, bool)))
        for row, token in tokens.items():
            step.tokens[row], step.present[row], step.new[row] = token, True, self._is_new[row]
            self._is_new[row] = False
        return step

    def run(self, step: Step) -> np.ndarray:
        """The outputs of all rows, `[R, V]`."""
        self._carry, ys = self._tick(self._params, self._carry, step)
        return np.asarray(ys)


class Steps:
    """Collects the tokens that arrive within a window, and runs them as one step.

    Numbers are computed in a thread, so that the loop that listens is never kept waiting. All else
    happens in the loop: a row that changes hands while a step runs cannot disturb it.
    """

    def __init__(self, rows: Rows, window: float):
        """`window`: seconds that a token waits for others."""
        self._rows, self._window = rows, window
        self._waiting: dict[int, tuple[int, asyncio.Future]] = {}
        self._arrived = asyncio.Event()
        self._worker = ThreadPoolExecutor(1)
        self.sizes: list[int] = []

    @contextlib.contextmanager
    def session(self) -> Iterator[int]:
        """A row, which is given back at the end, with a token that nobody waits for any more."""
        row = self._rows.enter()
        try:
            yield row
        finally:
            self._waiting.pop(row, None)
            self._rows.leave(row)

    async def step(self, row: int, token: int) -> np.ndarray:
        """What the session in this row gets for its token."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[row] = token, future
        self._arrived.set()
        return await future

    async def run(self) -> None:
        """Runs steps until it is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._arrived.wait()
                await asyncio.sleep(self._window)
                waiting, self._waiting = self._waiting, {}
                self._arrived.clear()
                self.sizes.append(len(waiting))
                step = self._rows.prepare({row: token for row, (token, _) in waiting.items()})
                outputs = await loop.run_in_executor(self._worker, self._rows.run, step)
                for row, (_, future) in waiting.items():
                    # A session that has left does not wait any more.
                    if not future.done():
                        future.set_result(outputs[row])
        finally:
            for _, future in self._waiting.values():
                future.cancel()
            self._worker.shutdown(wait=False)
