"""Errors that differ only in their figures are one error."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 500
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F-]{8,}\b|[0-9]+(?:[.,:][0-9]+)*|'[^']*'|\"[^\"]*\"")
"""Addresses, ids, numbers, times, and what is quoted."""


def fingerprint(error_class: str, message: str) -> str:
    """12 hex digits, the same for errors of a class whose first lines differ only in numbers, ids and quotations."""
    first = message.strip().partition("\n")[0][:_LONGEST]
    outline = f"{error_class}\n{_VARIABLE.sub('*', first)}"
    return hashlib.blake2b(outline.encode("utf-8", "replace"), digest_size=6).hexdigest()
