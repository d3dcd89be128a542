"""The web application, made by a factory: no state at import, any number beside each other in one process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

from fastapi import FastAPI

from amqpjobs.client import Client
from amqpjobs.clock import Clock, SystemClock
from amqpjobs.settings import Settings
from amqpjobs.streams import state
from amqpjobs.streams.state import StateFolder
from amqpjobs.streams.tracked_door import TrackedDoor
from amqpjobs.web import (
    acting,
    api,
    api_page,
    class_pages,
    description,
    enqueueing,
    job_page,
    kue,
    kue_acts,
    lists,
    login,
    ocypod,
    ocypod_config,
    pages,
    problems,
    process_pages,
    prometheus,
    queue_pages,
    recurring,
    resources,
    tracked_pages,
)
from amqpjobs.web.access import Access
from amqpjobs.web.auth import Guard
from amqpjobs.web.live import Pulse
from amqpjobs.web.prefix import Prefix
from amqpjobs.web.views import Views

_MODULES = (
    api, api_page, enqueueing, kue, kue_acts, job_page, queue_pages, process_pages, class_pages, acting, recurring,
    prometheus, pages, lists, login, ocypod, tracked_pages,
)  # fmt: skip


def create_app(
    settings: Settings, *, clock: Clock | None = None, folder: StateFolder | None = None, hosts: Iterable[str] = ()
) -> FastAPI:
    """The dashboard for one broker. It reads while its lifespan runs, once.

    `folder` is where its views live (by default the next free one; its lifespan raises NoStateFolder when there is
    none); `hosts` are further names that it answers to.
    """
    clock = clock or SystemClock()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        held = folder or state.hold(settings, "web")
        views = Views(settings, clock, held)
        app.state.tracked = tracked = TrackedDoor(settings, clock, held.path, name="amqpjobs web")
        pulse = Pulse(views, app.state.renderer.sections, clock)
        app.state.views, app.state.pulse, app.state.clock = views, pulse, clock
        app.state.client = Client(settings, clock=clock)
        try:
            await views.start()
            await tracked.start()
            await pulse.start()
            yield
        finally:
            await app.state.client.close()
            await pulse.stop()
            await tracked.stop()
            tracked.close()
            await views.stop()
            views.close()

    app = FastAPI(title="amqpjobs", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.renderer = pages.Renderer(settings.web_root_path)
    app.state.access = Access.of(settings, clock)
    app.state.ocypod = ocypod_config.read(settings.ocypod)
    app.router.routes.extend(resources.ordered(module.router for module in _MODULES))
    problems.install(app)
    description.install(app)
    app.add_middleware(Guard, access=app.state.access, hosts=tuple(hosts))
    if settings.web_root_path:
        app.add_middleware(Prefix, root=settings.web_root_path)
    return app
