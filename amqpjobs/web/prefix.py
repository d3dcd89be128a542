"""Serving below a path of a site, behind a proxy that may or may not take that path off."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class Prefix:
    """Tells the application that it is mounted at `root` (such as `/jobs`), whichever way the request came."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app, self._root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102
        if scope["type"] == "http":
            path: str = scope["path"]
            if not path.startswith(f"{self._root}/"):
                path = self._root + ("/" if path == self._root else path)
            scope = {**scope, "root_path": self._root, "path": path}
        await self._app(scope, receive, send)
