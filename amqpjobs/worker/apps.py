"""Finds the modules whose `@job` functions a worker is to run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path


class AppError(Exception):
    """A module that was named cannot be used; the message says why in one line (and `__cause__` has the rest)."""


def load(modules: Sequence[str]) -> None:
    """Import each module, the working directory searched too. Raises AppError for the first that cannot be."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    for name in modules:
        _load(name)


def _load(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(missing + "."):
            raise AppError(f"-A {name}: there is no module {missing!r} (looked in {Path.cwd()} too)") from None
        raise AppError(f"-A {name}: it imports {missing!r}, which is not installed") from error
    except Exception as error:
        raise AppError(f"-A {name}: importing it raised {type(error).__name__}: {error}") from error
    except SystemExit as error:
        raise AppError(f"-A {name}: importing it ended with exit code {error.code!r}: is it a script?") from error
