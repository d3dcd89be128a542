"""The web application, made by a factory: no state at import, any number beside each other in one process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

from fastapi import FastAPI

from amqpjobs.clock import Clock, SystemClock
from amqpjobs.settings import Settings
from amqpjobs.streams import state
from amqpjobs.streams.state import StateFolder
from amqpjobs.web import acting, api, lists, login, pages, problems, recurring
from amqpjobs.web.access import Access
from amqpjobs.web.auth import Guard
from amqpjobs.web.live import Pulse
from amqpjobs.web.prefix import Prefix
from amqpjobs.web.views import Views


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
        views = Views(settings, clock, folder or state.hold(settings, "web"))
        pulse = Pulse(views, app.state.renderer.sections, clock)
        app.state.views, app.state.pulse = views, pulse
        try:
            await views.start()
            await pulse.start()
            yield
        finally:
            await pulse.stop()
            await views.stop()
            views.close()

    app = FastAPI(title="amqpjobs", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.renderer = pages.Renderer()
    app.state.access = Access.of(settings, clock)
    app.include_router(api.router)
    app.include_router(acting.router)
    app.include_router(pages.router)
    app.include_router(lists.router)
    app.include_router(recurring.router)
    app.include_router(login.router)
    problems.install(app)
    app.add_middleware(Guard, access=app.state.access, hosts=tuple(hosts))
    if settings.web_root_path:
        app.add_middleware(Prefix, root=settings.web_root_path)
    return app
