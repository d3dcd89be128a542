"""Ports for servers that are about to start."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from amqpjobs.broker import ports
from amqpjobs.broker.ports import LOOPBACK, free_ports


def test_no_client_is_given_one_of_them() -> None:
    """Whoever looks for a server that is away would otherwise meet a connection at its port, or its own."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = free_ports(20)
    assert len(set(found)) == 20
    assert max(found) < first


def test_what_somebody_listens_on_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        [port] = free_ports(1)
        ports._kept.pop(port).close()
        taken.bind((LOOPBACK, port))
        taken.listen()
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match=f"no 1 ports between {port}"):
            free_ports(1)


def test_another_process_chooses_others_until_this_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    code = f"from amqpjobs.broker import ports; ports.PORTS = range({port}, {port + 1}); print(ports.free_ports(1))"

    def ask() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert "are free" in ask().stderr
    ports._kept.pop(port).close()
    assert ask().stdout == f"[{port}]\n"
