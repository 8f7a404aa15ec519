"""Steps that are run one after the other, over as many calls as they take.

The record file is the state: a step with an end in it is not run again. A call ends when its time
is up; a step that this cuts off is run again by the next call, which begins with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TAIL_LINES = 30
# Of the limit of a call: a step that had so much of it and did not end is not tried again.
WHOLE_CALL = 0.75
# With less time left no step is started.
LEAST_SECS = 0.04
KILL_SECS = 5


@dataclass(frozen=True)
class Step:
    """A command. passed: a pattern that its output has if anything was tested; without a match a
    step that succeeds is ``skipped``. result: the JSON file that it writes for the record.
    limit_secs: its longest time, after which it has ``timed out``; 0: that of the call. Lines of
    its output that are JSON objects with a ``figure`` enter the record, also if it is stopped."""

    name: str
    command: Sequence[str]
    passed: str = ""
    result: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_secs: float = 0


def run_command(step: Step, timeout_secs: float, log: Path) -> dict:
    """How the step ended: status (passed, failed, skipped or stopped), seconds and the end of its
    output, which is in ``log``. All processes of a step that takes too long are killed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if step.result:
        step.result.unlink(missing_ok=True)
    start, status = time.monotonic(), None
    with log.open("w") as out:
        try:
            process = subprocess.Popen(
                step.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **step.environment},
            )
        except OSError as error:
            out.write(f"{error}\n")
            status = 127
        else:
            try:
                status = process.wait(timeout_secs)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _kill_group(process)
    text = log.read_text(errors="replace")
    ended = {"command": " ".join(step.command), "seconds": round(time.monotonic() - start, 1)}
    ended["status"] = _status_of(step, status, text)
    ended["exit_status"] = status
    ended["tail"] = text.splitlines()[-(TAIL_LINES if status != 0 else 1) :]
    figures = _figures_of(text)
    return ended | ({"figures": figures} if figures else {}) | _result_of(step)


def _kill_group(process: subprocess.Popen) -> None:
    """Ends the processes that the step left; compute-sanitizer and launchers have children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(KILL_SECS)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _status_of(step: Step, status: int | None, text: str) -> str:
    if status is None:
        return "stopped"
    if status != 0:
        return "failed"
    return "passed" if re.search(step.passed, text) else "skipped"


def _figures_of(text: str) -> list[dict]:
    """The lines of a native bench; the last one may be cut off."""
    figures = []
    for line in text.splitlines():
        if line.startswith('{"figure":') and line.endswith("}"):
            figures.append(json.loads(line))
    return figures


def _result_of(step: Step) -> dict:
    """The result that the step wrote, even if it failed later; empty without one."""
    if step.result is None or not step.result.exists():
        return {}
    try:
        return {"result": json.loads(step.result.read_text())}
    except ValueError:
        return {}


SAME = ("tree", "gpu")
"""The facts that a record has to share with a call to be continued by it."""


class Record:
    """The record file: facts about the run, and how each step ended."""

    def __init__(self, path: Path, facts: Mapping) -> None:
        self._path = path
        kept: dict = json.loads(path.read_text()) if path.exists() else {}
        is_same = all(kept.get(name) == facts[name] for name in SAME)
        self.has_restarted = bool(kept) and not is_same
        """True if the file was of another tree or GPU: its steps do not count."""
        self.steps: dict[str, dict] = kept.get("steps", {}) if is_same else {}
        self._facts = dict(facts)

    def is_done(self, step: Step) -> bool:
        """True if the step ended in this or an earlier call."""
        return self.steps.get(step.name, {}).get("status", "stopped") != "stopped"

    def forget(self, *statuses: str) -> None:
        """Lets steps that ended so be run again."""
        self.steps = {
            name: ended for name, ended in self.steps.items() if ended["status"] not in statuses
        }

    def add(self, step: Step, ended: dict) -> None:
        """Writes the file, whole, so that a call that is killed leaves the one before."""
        self.steps[step.name] = ended
        self.write()

    def write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".unfinished")
        made = {**self._facts, "reach": self.reach(), "steps": self.steps}
        unfinished.write_text(json.dumps(made, indent=1) + "\n")
        unfinished.replace(self._path)

    def reach(self) -> dict[str, dict]:
        """The targets of all benches, with the measurements."""
        results = [ended.get("result", {}) for ended in self.steps.values()]
        return {what: line for result in results for what, line in result.get("reach", {}).items()}

    def figures(self) -> list[dict]:
        """The figures of all native benches."""
        return [figure for ended in self.steps.values() for figure in ended.get("figures", [])]


def run_steps(
    steps: Sequence[Step],
    record: Record,
    *,
    deadline: float,
    limit_secs: float,
    logs: Path,
    after: Callable[[], None] = lambda: None,
) -> bool:
    """Runs the steps that have no end yet, until ``deadline`` (time.monotonic()); returns whether
    all have one then. Prints a line for each, and calls ``after``. limit_secs: time of a whole
    call."""
    for number, step in enumerate(steps, 1):
        if record.is_done(step):
            continue
        left = deadline - time.monotonic()
        if left < LEAST_SECS * limit_secs:
            return False
        print(f"[{number}/{len(steps)}] {step.name} ..", end=" ", flush=True)
        allowed = min(left, step.limit_secs or left)
        ended = run_command(step, allowed, logs / log_name(step.name))
        is_over = allowed < left or left >= WHOLE_CALL * limit_secs
        if ended["status"] == "stopped" and is_over:
            ended["status"] = "timed out"
        record.add(step, ended)
        after()
        print(f"{ended['status']} ({ended['seconds']:.0f} s)", flush=True)
        if ended["status"] == "stopped":
            return False
    return True


def log_name(step: str) -> str:
    """The file of a step's output, as short as file systems take."""
    return re.sub(r"[^A-Za-z0-9]+", "-", step)[:100].strip("-") + ".log"
