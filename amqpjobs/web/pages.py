"""The pages: templates filled from the snapshot, whole or section by section."""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from amqpjobs.web import api, throughput, wording
from amqpjobs.web.access import Access
from amqpjobs.web.auth import visitor_of
from amqpjobs.web.live import Pulse, Sections
from amqpjobs.web.responses import told
from amqpjobs.web.status import Status

router = APIRouter(include_in_schema=False)

STATIC = Path(__file__).parent / "static"
SECTIONS = ("health", "findings", "totals", "throughput", "history", "queues", "processes")
"""The parts of /job-queues that change by themselves; each is `templates/parts/{name}.html`."""


def templates_folder() -> Path:
    """Beside this file in an installed wheel, at the repository's root in a checkout."""
    packaged = Path(__file__).parent / "templates"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "templates"


class Frame(NamedTuple):
    """What every page needs to know of its visitor. `csrf`: what its forms must send back, "" where nothing."""

    root: str
    read_only: bool
    csrf: str
    who: str
    """The name of somebody who logged in here; "" of whom nothing was asked, or who came by other means."""


class Renderer:
    """Fills the templates. Everything that is not a template's own text is escaped."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._templates = _environment()

    def sections(self, snapshot: Status) -> Sections:
        """Each part of the dashboard that changes by itself: the same for every visitor, so there is no form in it."""
        known = {**_names(snapshot), "root": self._root}
        return {name: self._templates.get_template(f"parts/{name}.html").render(known) for name in SECTIONS}

    def dashboard(self, snapshot: Status, frame: Frame) -> str:
        """The whole page."""
        page = self._templates.get_template("job_queues.html")
        return page.render(**_names(snapshot), sections=self.sections(snapshot), **frame._asdict())

    def page(self, name: str, snapshot: Status, frame: Frame, **more: object) -> str:
        """A page that stands still, with the state of things in its bar."""
        health = self._templates.get_template("parts/health.html").render(_names(snapshot) | {"still": True})
        return self._templates.get_template(name).render(**_names(snapshot), health=health, **frame._asdict(), **more)

    def bare(self, template: str, root: str, **more: object) -> str:
        """A page that tells nothing of what is known here."""
        return self._templates.get_template(template).render(root=root, **more)


def frame_of(request: Request) -> Frame:
    """The visitor of a request, for a page."""
    access: Access = request.app.state.access
    visitor = visitor_of(request)
    read_only = access.read_only or visitor.role != "operator"
    who = visitor.name if visitor.cookie else ""
    return Frame(request.scope.get("root_path", ""), read_only, access.csrf(visitor), who)


async def page_of(request: Request, name: str, **more: object) -> Response:
    """A page that stands still, rendered in a thread: with hundreds of rows it would hold up the loop."""
    pulse: Pulse = request.app.state.pulse
    renderer: Renderer = request.app.state.renderer
    snapshot, frame = await pulse.look(), frame_of(request)
    return await asyncio.to_thread(lambda: HTMLResponse(renderer.page(name, snapshot, frame, **more)))


@router.get("/")
async def home(request: Request) -> Response:
    """The dashboard is the first page."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/job-queues", 302)


@router.get("/job-queues")
async def dashboard(request: Request) -> Response:
    """The dashboard, or its figures when JSON is asked for."""
    pulse: Pulse = request.app.state.pulse
    snapshot = await pulse.look()
    if wants_json(request.headers.get("accept", "")):
        return await told(lambda: api.overview(snapshot), headers={"Vary": "Accept"})
    renderer: Renderer = request.app.state.renderer
    page = await asyncio.to_thread(renderer.dashboard, snapshot, frame_of(request))
    return HTMLResponse(page, headers={"Vary": "Accept"})


@router.get("/events")
async def events(request: Request) -> Response:
    """The dashboard's changes as they come."""
    pulse: Pulse = request.app.state.pulse
    headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    return StreamingResponse(pulse.events(), media_type="text/event-stream", headers=headers)


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """A file of the page. Its address has its digest, so browsers may keep it for good."""
    kind = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}.get(Path(name).suffix)
    if kind is None or name not in _files():
        return Response("Not found\n", 404, media_type="text/plain")
    return Response(_files()[name], media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def wants_json(accept: str) -> bool:
    """Whether a client names JSON and does not name HTML, which browsers always do."""
    return "application/json" in accept and "text/html" not in accept


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in STATIC.iterdir() if path.is_file()}


@cache
def _asset(name: str) -> str:
    """The address of a file of the page, relative to the root, with its digest."""
    return f"/static/{name}?v={hashlib.blake2b(_files()[name], digest_size=6).hexdigest()}"


@cache
def _environment() -> Environment:
    """The templates, all compiled: done at the first visit, it would hold up the loop for a tenth of a second."""
    templates = Environment(
        loader=FileSystemLoader(templates_folder()),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (wording.number, wording.rate, wording.share, wording.duration, wording.age, wording.size)
    named = {each.__name__: each for each in (*filters, wording.iso, wording.instant, wording.date, wording.segment)}
    templates.filters.update(named, marked=_marked)
    templates.globals.update(asset=_asset)
    for name in templates.list_templates():
        templates.get_template(name)
    return templates


def _marked(told: str) -> Markup:
    """Text in which `code` stands between backticks, as docstrings have it."""
    parts = enumerate(told.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(each) if at % 2 else each for at, each in parts)


def _names(snapshot: Status) -> dict[str, object]:
    return {
        "status": snapshot,
        "facts": snapshot.facts,
        "top": throughput.ceiling(snapshot.bars),
        "step": throughput.STEP,
        "steps": throughput.BARS,
        "still": False,
    }
