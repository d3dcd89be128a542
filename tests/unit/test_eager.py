"""Tasks whose first step is made at once, on both kinds of loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from amqpjobs.worker import eager

Main = Callable[[], Coroutine[Any, Any, None]]
_name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="outside")


@pytest.fixture(params=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    def run(main: Main) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main(), 20))

    return run


def begin(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    tasks: list[asyncio.Task[None]] = []
    eager.begin(asyncio.get_running_loop(), coroutine, contextvars.copy_context(), tasks.append)
    return tasks[0]


def test_the_first_step_is_made_at_once_in_its_own_task_and_context(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        seen: list[Any] = []

        async def work() -> None:
            _name.set("inside")
            seen.append(asyncio.current_task())
            await asyncio.sleep(0.001)
            seen.extend([asyncio.current_task(), _name.get()])

        outer = asyncio.current_task()
        task = begin(work())
        assert seen == [task]
        assert (asyncio.current_task(), _name.get()) == (outer, "outside")
        await task
        assert seen == [task, task, "inside"]

    on_loop(main)


def test_outside_of_every_task_as_well(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        async def work() -> None:
            await asyncio.sleep(0)
            ended.set_result(None)

        loop.call_soon(lambda: begin(work()))
        await ended

    on_loop(main)


def test_what_ends_at_once_has_ended(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        done = []

        async def work() -> None:
            done.append(1)

        task = begin(work())
        assert done == [1]
        await task
        ended_then_cancelled = begin(work())
        ended_then_cancelled.cancel()  # too late for the coroutine; nothing else may come of it
        await asyncio.wait([ended_then_cancelled])
        assert done == [1, 1]

    on_loop(main)


@pytest.mark.parametrize("waits", ["a future", "a turn", "a child"])
@pytest.mark.parametrize("later", [False, True])
def test_a_cancel_reaches_the_coroutine(on_loop: Callable[[Main], None], waits: str, later: bool) -> None:
    async def main() -> None:
        seen: list[str] = []
        child = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                if waits == "a turn":
                    for _ in range(1_000_000):
                        await asyncio.sleep(0)
                await (child if waits == "a future" else asyncio.create_task(asyncio.sleep(60)))
            except asyncio.CancelledError:
                seen.append("cancelled")
                await asyncio.sleep(0.001)
                seen.append("cleaned up")
                raise

        task = begin(work())
        if later:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled", "cleaned up"]
        assert child.cancelled() or waits != "a future"

    on_loop(main)


def test_a_coroutine_may_refuse_to_be_cancelled(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        async def work() -> None:
            for _ in range(2):
                try:
                    await asyncio.sleep(0.001)
                except asyncio.CancelledError:
                    continue

        task = begin(work())
        task.cancel()
        await task
        assert not task.cancelled()

    on_loop(main)


def test_what_it_waits_for_may_fail_end_at_once_or_be_waited_for_by_others(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        shared, failing, seen = loop.create_future(), loop.create_future(), []

        async def work() -> None:
            seen.append(await shared)
            try:
                await failing
            except ValueError:
                seen.append("failed")

        async def other() -> None:
            await shared

        task = begin(work())
        beside = asyncio.create_task(other())
        shared.set_result("shared")
        failing.set_exception(ValueError())
        await asyncio.gather(task, beside)
        assert seen == ["shared", "failed"]

    on_loop(main)


def test_timeouts_and_groups_work_from_the_first_step_on(on_loop: Callable[[Main], None]) -> None:
    async def main() -> None:
        seen: list[str] = []

        async def inner() -> None:
            await asyncio.sleep(60)

        async def work() -> None:
            try:
                async with asyncio.timeout(0.002):
                    await inner()
            except TimeoutError:
                seen.append("late")
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0.001))
            begun = begin(nested())  # within a step of a begun one
            await begun

        async def nested() -> None:
            await asyncio.sleep(0)
            seen.append("nested")

        await begin(work())
        assert seen == ["late", "nested"]

    on_loop(main)
