"""An authority of the test's own and the certificates that it gives out, made by the program `openssl`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificate(NamedTuple):
    """PEM files."""

    cert: Path
    key: Path


class Authority:
    """Keeps its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.file = folder / "ca.pem"
        self._key = folder / "ca.key"
        subject = ("-subj", "/CN=amqpjobs test authority", "-days", "2")
        _openssl("req", "-x509", *_KEY, "-keyout", str(self._key), "-out", str(self.file), *subject)

    def issue(self, name: str, *, address: str = "IP:127.0.0.1", days: int = 1) -> Certificate:
        """A certificate for `address` (`IP:…`, `DNS:…`); with negative days it has expired."""
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={address}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl("req", *_KEY, "-keyout", str(made.key), "-out", str(request), "-subj", f"/CN={name}")
        by = ("-CA", str(self.file), "-CAkey", str(self._key), "-CAcreateserial", "-extfile", str(extensions))
        _openssl("x509", "-req", "-in", str(request), *by, "-days", str(days), "-out", str(made.cert))
        made.key.chmod(0o644)
        return made


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
