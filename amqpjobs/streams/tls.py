"""TLS towards the broker and its management API: whom we trust, and what to say when we cannot."""

from __future__ import annotations

import ssl
from pathlib import Path

from amqpjobs.settings import Settings
from amqpjobs.streams.errors import Refused


def context(settings: Settings) -> ssl.SSLContext:
    """What to connect with: the authorities of `ca_file` or else the system's, and our certificate if there is one.

    Reads files. Raises Refused, naming the setting whose file cannot be used.
    """
    made = ssl.create_default_context()
    if settings.ca_file is not None:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with _Blaming("AMQPJOBS_CA_FILE", settings.ca_file):
            made.load_verify_locations(cafile=settings.ca_file)
    if settings.cert_file is not None:
        with _Blaming("AMQPJOBS_CERT_FILE, AMQPJOBS_KEY_FILE", settings.cert_file):
            made.load_cert_chain(settings.cert_file, settings.key_file, password=_no_password)
    return made


def failure(error: ssl.SSLError, address: str) -> str:
    """One line that says what is wrong with the connection to `address` and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = str(error.verify_message).rstrip(".")
        unknown = "self-signed" in reason or "self signed" in reason or "issuer" in reason
        hint = ": name the authority's file in AMQPJOBS_CA_FILE" if unknown else ""
        return f"{address} shows a certificate that is not accepted: {reason}{hint}"
    if error.reason == "WRONG_VERSION_NUMBER":
        return f"{address} does not speak TLS on this port: write amqp: (http:), or another port"
    wanted = "CERTIFICATE_REQUIRED" in str(error.reason) or "HANDSHAKE_FAILURE" in str(error.reason)
    hint = "; if it asks for a certificate: AMQPJOBS_CERT_FILE" if wanted else ""
    return f"{address} refuses the TLS connection: {error.reason or error}{hint}"


class _Blaming:
    """Says which setting's file it was."""

    def __init__(self, setting: str, file: Path) -> None:
        self._setting, self._file = setting, file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ssl.SSLError):
            raise Refused(f"{self._setting}: {self._file} holds no PEM that fits: {error.reason or error}") from error
        if isinstance(error, OSError):
            raise Refused(f"{self._setting}: {self._file}: {error.strerror}") from error


def _no_password() -> str:
    raise ssl.SSLError(1, "the key has a password")
