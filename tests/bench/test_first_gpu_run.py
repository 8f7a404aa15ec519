"""`make first-gpu-run`, with stand-ins for its steps: it goes on after failures, ends in time, and
continues where it stopped."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.training import REPOSITORY

sys.path.append(str(REPOSITORY / "bench"))
import first_gpu_run
from resumable import Record, Step, run_command, run_steps

FACTS = {"commit": "abc", "machine": {"cores": 2}, "gpu": ["H100"]}


def shell(name, script, **more):
    return Step(name, ["sh", "-c", script], **more)


def call(path, steps, *, seconds=30.0, limit_secs=30.0, facts=FACTS):
    """One call; whether it finished, and the record that it left."""
    deadline = time.monotonic() + seconds
    record = Record(path, facts)
    is_done = run_steps(
        steps, record, deadline=deadline, limit_secs=limit_secs, logs=path.parent / "logs"
    )
    return is_done, json.loads(path.read_text())


def statuses(made):
    return {name: ended["status"] for name, ended in made["steps"].items()}


def test_it_goes_on_after_a_failure(tmp_path):
    steps = [
        shell("fails", "echo what went wrong; exit 3"),
        Step("is not there", [str(tmp_path / "nothing")]),
        shell("skips", "echo 4 skipped", passed=r"\d+ passed"),
        shell("passes", "echo 12 passed", passed=r"\d+ passed"),
    ]
    is_done, made = call(tmp_path / "record.json", steps)
    assert is_done
    assert statuses(made) == {
        "fails": "failed",
        "is not there": "failed",
        "skips": "skipped",
        "passes": "passed",
    }
    assert made["steps"]["fails"]["exit_status"] == 3
    assert made["steps"]["fails"]["tail"] == ["what went wrong"]
    assert made["commit"] == "abc"


def test_the_next_call_continues_with_the_step_that_was_cut_off(tmp_path):
    path, log = tmp_path / "record.json", tmp_path / "log"
    steps = [
        shell("first", f"echo first >>{log}; exit 1"),
        shell("second", f"echo second >>{log}; test -e {tmp_path}/go || sleep 60"),
        shell("third", f"echo third >>{log}"),
    ]
    start = time.monotonic()
    is_done, made = call(path, steps, seconds=1.5)
    assert not is_done
    assert time.monotonic() - start < 20
    assert statuses(made) == {"first": "failed", "second": "stopped"}
    (tmp_path / "go").touch()
    is_done, made = call(path, steps)
    assert is_done
    assert statuses(made) == {"first": "failed", "second": "passed", "third": "passed"}
    assert log.read_text().split() == ["first", "second", "second", "third"]


def test_a_step_that_takes_a_whole_call_is_not_tried_again(tmp_path):
    steps = [shell("endless", "sleep 60"), shell("last", "true")]
    is_done, made = call(tmp_path / "record.json", steps, seconds=1, limit_secs=1)
    assert statuses(made)["endless"] == "timed out"
    assert not is_done
    is_done, made = call(tmp_path / "record.json", steps, seconds=20, limit_secs=20)
    assert is_done
    assert statuses(made) == {"endless": "timed out", "last": "passed"}


def test_no_step_is_started_without_time(tmp_path):
    steps = [shell("first", "true"), shell("second", "true")]
    call(tmp_path / "record.json", steps[:1])
    is_done, made = call(tmp_path / "record.json", steps, seconds=0.5)
    assert not is_done
    assert statuses(made) == {"first": "passed"}


def test_another_commit_begins_anew(tmp_path):
    path, steps = tmp_path / "record.json", [shell("step", f"echo run >>{tmp_path}/log")]
    call(path, steps)
    _, made = call(path, steps, facts=FACTS | {"commit": "def"})
    assert made["commit"] == "def"
    assert (tmp_path / "log").read_text().split() == ["run", "run"]
    assert Record(path, FACTS).has_restarted


def test_failed_steps_again(tmp_path):
    path = tmp_path / "record.json"
    call(path, [shell("bad", "exit 1"), shell("good", "true")])
    record = Record(path, FACTS)
    record.forget("failed", "timed out")
    assert list(record.steps) == ["good"]


def test_children_end_with_a_step_that_is_stopped(tmp_path):
    step = shell("parent", f"sh -c 'echo $$ >{tmp_path}/pid; exec sleep 60' & wait")
    ended = run_command(step, 1.5, tmp_path / "log")
    assert ended["status"] == "stopped"
    child = int((tmp_path / "pid").read_text())

    def is_gone():
        status = Path(f"/proc/{child}/stat")
        return not status.exists() or status.read_text().split()[2] == "Z"

    deadline = time.monotonic() + 20
    while not is_gone() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_gone()


def test_targets_stand_beside_figures(tmp_path):
    result = tmp_path / "bench.json"
    reach = {"gather": {"measured": 0.5, "at_least": 0.85, "reached": False}}
    write = f"echo '{json.dumps({'reach': reach})}' >{result}; exit 1"
    steps = [shell("bench", write, result=result)]
    _, made = call(tmp_path / "record.json", steps)
    assert made["reach"] == reach
    text = first_gpu_run.summary(Record(tmp_path / "record.json", FACTS), steps)
    assert "gather: 0.5, at least 0.85: missed" in text
    assert "1 of 1 steps: 1 failed" in text


def test_a_result_of_an_earlier_call_is_not_taken_for_this_one(tmp_path):
    result = tmp_path / "bench.json"
    result.write_text('{"reach": {"old": {}}}')
    ended = run_command(shell("bench", "exit 1", result=result), 10, tmp_path / "log")
    assert "result" not in ended


def test_without_a_gpu_one_line_says_so():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, REPOSITORY / "bench/first_gpu_run.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == first_gpu_run.NO_GPU
    assert done.stdout.startswith("no GPU: ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_what_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setattr(first_gpu_run, "find_gpus", lambda: ["H100"])
    monkeypatch.setattr(first_gpu_run, "BUILDING", ("pytest", "no-such-package"))
    monkeypatch.setattr(first_gpu_run, "PROGRAMS", ("sh", "no-such-compiler"))
    assert first_gpu_run.main(["--offline"]) == first_gpu_run.MISSING
    shown = capsys.readouterr().out
    assert "no-such-compiler" in shown
    assert "no-such-package" in shown
    assert "pytest," not in shown


@pytest.fixture
def with_stand_ins(monkeypatch, tmp_path):
    """main() with a GPU, and with stand-ins for the build and the steps."""
    monkeypatch.setattr(first_gpu_run, "find_gpus", lambda: ["H100"])
    monkeypatch.setattr(first_gpu_run, "missing", lambda is_offline: [])

    def run(build, *steps, limit_secs=40):
        monkeypatch.setattr(first_gpu_run, "make_command", lambda *_, **__: ["sh", "-c", build])
        monkeypatch.setattr(first_gpu_run, "all_steps", lambda *_: list(steps))
        record = tmp_path / "made/record.json"
        arguments = ["--json", str(record), "--limit-secs", str(limit_secs)]
        return first_gpu_run.main(arguments), record

    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return run


def test_exit_statuses(with_stand_ins, capsys):
    status, record = with_stand_ins("exit 2", shell("step", "true"))
    assert (status, record.exists()) == (first_gpu_run.FAILED, False)
    status, record = with_stand_ins("sleep 60", shell("step", "true"), limit_secs=2)
    assert (status, record.exists()) == (first_gpu_run.UNFINISHED, False)
    capsys.readouterr()
    status, record = with_stand_ins("true", shell("good", "true"))
    assert status == 0
    made = json.loads(record.read_text())
    assert made["gpu"] == ["H100"]
    assert {"commit", "machine", "date"} <= set(made)
    assert "1 of 1 steps: 1 passed" in capsys.readouterr().out
    status, _ = with_stand_ins("true", shell("good", "true"), shell("bad", "exit 1"))
    assert status == first_gpu_run.FAILED
    status, _ = with_stand_ins("true", shell("long", "sleep 60"), limit_secs=4)
    assert status == first_gpu_run.UNFINISHED
    assert "call it again" in capsys.readouterr().out


def test_the_steps_are_those_of_make(tmp_path):
    """Every file with tests for GPUs has one, and make knows the goals and variables."""
    steps = first_gpu_run.all_steps(sys.executable, True, tmp_path)
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    for path in ("cache/test_gpu_planner", "storage/test_gpu_nvme", "train/test_multigpu"):
        assert f"test tests/{path}.py" in names
    step = next(
        s for s in steps if s.name == "memcheck tests/native/test_gpu_gather.py::test_gathers"
    )
    shown = subprocess.run(
        [*step.command, "--dry-run"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "compute-sanitizer --error-exitcode=1 --tool=memcheck" in shown
    assert "cmake" not in shown
    assert shown.rstrip().endswith("tests/native/test_gpu_gather.py::test_gathers")


def test_its_benches_are_those_of_the_benchmark():
    import gpu

    assert set(first_gpu_run.BENCH_PARTS) == set(gpu.PARTS)
