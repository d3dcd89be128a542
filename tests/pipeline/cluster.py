"""A standalone Spark cluster on loopback, from PySpark's own `spark-class`: a master, two workers of one core each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.patience import PATIENCE

WORKERS = 2
EXECUTOR = "CoarseGrainedExecutorBackend"


class Cluster:
    """Runs while it is entered; `environment` is what a driver on it needs. Logs are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(folder / "conf")}

    def __enter__(self) -> Self:
        from amqpjobs.pipeline.session import QUICK_JAVA

        (self._folder / "conf").mkdir(parents=True)
        defaults = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK_JAVA}
        text = "".join(f"{name} {value}\n" for name, value in defaults.items())
        (self._folder / "conf" / "spark-defaults.conf").write_text(text)
        try:
            # Ports are the system's choice; what was chosen is in the master's log.
            self._start("master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            master = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(WORKERS):
                work = str(self._folder / f"work{number}")
                self._start(f"worker{number}", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1",
                            "--memory", "1g", "--work-dir", work, master)  # fmt: skip
            for number in range(WORKERS):
                self._said(f"worker{number}", r"Successfully registered with master")
        except BaseException:
            self._end()
            raise
        self.environment["AMQPJOBS_SPARK_MASTER"] = master
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def executors(self) -> list[psutil.Process]:
        """The executors that run now."""
        found = [child for each in self._processes for child in psutil.Process(each.pid).children(recursive=True)]
        return [each for each in found if EXECUTOR in " ".join(words(each))]

    def _start(self, name: str, *more: str) -> None:
        import pyspark

        role = name.rstrip("0123456789")
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(spark_class), f"org.apache.spark.deploy.{role}.{role.capitalize()}"]
        # A worker's environment is that of its executors, and of their Python.
        environment = {**os.environ, **self.environment, "SPARK_DAEMON_MEMORY": "256m"}
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [*command, *more], env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(process)

    def _said(self, name: str, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            text = (self._folder / f"{name}.log").read_text()
            if found := re.search(pattern, text):
                return found.group(found.lastindex or 0)
            time.sleep(0.2)
        raise AssertionError(f"{name} did not say {pattern!r}:\n{text[-2000:]}")

    def _end(self) -> None:
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def words(process: psutil.Process) -> list[str]:
    """The command line; none of a process that is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
