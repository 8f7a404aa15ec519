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
from tree_hash import tree_hash

pytestmark = pytest.mark.slow

FACTS = {"commit": "abc", "tree": "1234", "machine": {"cores": 2}, "gpu": ["H100"]}


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


@pytest.mark.parametrize(("fact", "value"), [("tree", "5678"), ("gpu", ["H200"])])
def test_another_tree_or_gpu_begins_anew(tmp_path, fact, value):
    path, steps = tmp_path / "record.json", [shell("step", f"echo run >>{tmp_path}/log")]
    call(path, steps)
    _, made = call(path, steps, facts=FACTS | {fact: value})
    assert made[fact] == value
    assert (tmp_path / "log").read_text().split() == ["run", "run"]
    assert Record(path, FACTS).has_restarted


def test_another_machine_with_that_gpu_goes_on(tmp_path):
    path, steps = tmp_path / "record.json", [shell("step", f"echo run >>{tmp_path}/log")]
    call(path, steps)
    call(path, steps, facts=FACTS | {"machine": {"cores": 16}, "commit": "unknown"})
    assert (tmp_path / "log").read_text().split() == ["run"]


def test_a_step_over_its_limit_is_ended_and_not_tried_again(tmp_path):
    log = tmp_path / "log"
    steps = [
        shell("hangs", f"echo hangs >>{log}; sleep 60", limit_secs=1),
        shell("next", f"echo next >>{log}"),
    ]
    for _ in range(2):
        is_done, made = call(tmp_path / "record.json", steps, seconds=50, limit_secs=200)
        assert is_done
        assert statuses(made) == {"hangs": "timed out", "next": "passed"}
    assert log.read_text().split() == ["hangs", "next"]


def test_figures_of_a_step_that_is_stopped_are_kept(tmp_path):
    whole = '{"figure": "gather", "value": 3.5, "unit": "GB/s"}'
    step = shell("bench", f"echo '{whole}'; printf '{whole[:20]}'; sleep 60", limit_secs=2)
    _, made = call(tmp_path / "record.json", [step], seconds=50, limit_secs=200)
    assert made["steps"]["bench"]["figures"] == [json.loads(whole)]
    text = first_gpu_run.summary(Record(tmp_path / "record.json", FACTS), [step])
    assert "gather: 3.5 GB/s" in text
    assert "bench: timed out" in text


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
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == first_gpu_run.NO_GPU
    assert done.stdout.startswith("no GPU: ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(first_gpu_run, "BUILDING", ("pytest", "no-such-package"))
    monkeypatch.setattr(first_gpu_run, "OFFLINE_PROGRAMS", ("sh", "no-such-compiler"))
    lacking = first_gpu_run.missing(is_offline=True)
    assert {"no-such-compiler", "no-such-package"} <= set(lacking)
    assert not {"sh", "pytest", "make"} & set(lacking)


@pytest.fixture
def with_stand_ins(monkeypatch, tmp_path):
    """main() with a GPU, and with stand-ins for the build and the steps."""
    monkeypatch.setattr(first_gpu_run, "find_gpus", lambda: ["H100"])
    monkeypatch.setattr(first_gpu_run, "gpu_problem", lambda: "")
    monkeypatch.setattr(first_gpu_run, "missing", lambda is_offline: [])

    def run(build, *steps, native=(), limit_secs=40):
        monkeypatch.setattr(first_gpu_run, "build_step", lambda *_: shell("build", build))
        monkeypatch.setattr(first_gpu_run.Steps, "native", lambda _: list(native))
        monkeypatch.setattr(first_gpu_run.Steps, "built", lambda _: list(steps))
        record = tmp_path / "made/record.json"
        arguments = ["--json", str(record), "--limit-secs", str(limit_secs)]
        return first_gpu_run.main(arguments), record

    return run


def test_exit_statuses(with_stand_ins, capsys):
    native = [shell("self-test", "true")]
    status, record = with_stand_ins("exit 2", shell("step", "true"), native=native)
    assert status == first_gpu_run.FAILED
    assert statuses(json.loads(record.read_text())) == {"self-test": "passed"}
    status, record = with_stand_ins("sleep 60", shell("step", "true"), limit_secs=4)
    assert status == first_gpu_run.UNFINISHED
    record.unlink()
    capsys.readouterr()
    status, record = with_stand_ins("true", shell("good", "true"))
    assert status == 0
    made = json.loads(record.read_text())
    assert made["gpu"] == ["H100"]
    assert {"tree", "commit", "machine", "date"} <= set(made)
    assert "1 of 1 steps: 1 passed" in capsys.readouterr().out
    status, _ = with_stand_ins("true", shell("good", "true"), shell("bad", "exit 1"))
    assert status == first_gpu_run.FAILED
    status, _ = with_stand_ins("true", shell("long", "sleep 60"), limit_secs=4)
    assert status == first_gpu_run.UNFINISHED
    assert "call it again" in capsys.readouterr().out


def test_a_gpu_that_does_not_work_is_said_first(with_stand_ins, monkeypatch, capsys):
    monkeypatch.setattr(first_gpu_run, "gpu_problem", lambda: "cuMemAlloc failed with error 2")
    status, record = with_stand_ins("true", shell("step", "true"))
    assert status == first_gpu_run.FAILED
    shown = capsys.readouterr().out
    assert shown == "the GPU does not work: cuMemAlloc failed with error 2; nothing was run\n"
    assert statuses(json.loads(record.read_text())) == {}


def test_native_steps_are_run_without_packages(with_stand_ins, monkeypatch, capsys):
    monkeypatch.setattr(first_gpu_run, "missing", lambda is_offline: ["pydantic"])
    status, record = with_stand_ins("true", shell("step", "true"), native=[shell("native", "true")])
    assert status == first_gpu_run.MISSING
    assert "missing: pydantic;" in capsys.readouterr().out
    assert statuses(json.loads(record.read_text())) == {"native": "passed"}


def test_the_steps(tmp_path):
    """Every file with tests for GPUs has one, each tool one process; offline without make."""
    steps = first_gpu_run.Steps(sys.executable, tmp_path / "gpu_selftest", tmp_path)
    (tmp_path / "gpu_selftest").touch()
    named = {step.name: step for step in [*steps.native(), *steps.built()]}
    assert len(named) == len([*steps.native(), *steps.built()])
    for path in first_gpu_run.gpu_test_files():
        assert f"test {path}" in named
    order = ["facts", "self-test", "test tests/native/test_gpu_gather.py", "bench gather"]
    order += ["bench planner", "bench embed", "bench training", "bench exchange"]
    order += [
        "test tests/features/test_gpu_shared_features.py",
        "test tests/storage/test_gpu_gds.py",
    ]
    order += ["memcheck", "ncu CopyRows", "ncu LookUp"]
    places = [list(named).index(name) for name in order]
    assert places == sorted(places)
    assert named["memcheck"].command[:2] == ["compute-sanitizer", "--tool=memcheck"]
    assert set(first_gpu_run.WATCHED_TESTS) < set(named["memcheck"].command)
    assert all(step.limit_secs for step in named.values())
    assert not any("make" in step.command for step in named.values())
    assert "make" not in first_gpu_run.build_step(sys.executable, True).command
    assert "make" in first_gpu_run.build_step(sys.executable, False).command


def test_without_the_native_program_its_steps_wait(tmp_path):
    """They must not count as done on a machine that has it."""
    steps = first_gpu_run.Steps(sys.executable, tmp_path / "gpu_selftest", tmp_path)
    assert [step.name for step in steps.native()] == ["facts"]
    assert not any(step.name.startswith("ncu") for step in steps.built())


def test_tests_under_a_sanitizer_are_there():
    pytest_ = [sys.executable, "-m", "pytest", "--collect-only", *first_gpu_run.WATCHED_TESTS]
    done = subprocess.run(pytest_, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(first_gpu_run.WATCHED_TESTS) <= set(done.stdout.splitlines())


def test_its_benches_are_those_of_the_benchmark(tmp_path):
    import gpu

    steps = first_gpu_run.Steps(sys.executable, tmp_path, tmp_path).built()
    parts = {step.name.removeprefix("bench ") for step in steps if step.name.startswith("bench ")}
    assert parts == {*gpu.PARTS, "exchange"}


def test_a_tree_is_known_by_its_files(tmp_path):
    (tmp_path / "lsm").mkdir()
    (tmp_path / "lsm/a.py").write_text("1")
    first = tree_hash(tmp_path)
    (tmp_path / "README.md").write_text("words")
    (tmp_path / "lsm/_core.so").write_text("a build")
    assert tree_hash(tmp_path) == first
    (tmp_path / "lsm/a.py").write_text("2")
    assert tree_hash(tmp_path) != first
