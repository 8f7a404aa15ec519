"""The loop validates, writes checkpoints, stops and continues as its schedule says."""

import json
from dataclasses import dataclass, field

import pytest
import torch

from lsm.config.load import load_config
from lsm.distributed import signals
from lsm.distributed.collectives import World
from lsm.run.log import RunLog
from lsm.run.loop import Cadence, Loop, Validation
from lsm.run.position import Position
from lsm.run.records import open_records
from lsm.run.totals import Totals

ITERATIONS = 4
SCORES = {1: 0.3, 2: 0.5, 3: 0.4, 4: 0.4, 5: 0.6, 6: 0.1, 7: 0.6}


@dataclass
class Counted:
    """Trains nothing: item i of epoch e has the losses e + 1 and i, and validation finds SCORES."""

    position: Position = field(default_factory=Position)
    trained: list[tuple[int, int]] = field(default_factory=list)
    validated: list[int] = field(default_factory=list)
    saved: list[tuple[int, int, bool]] = field(default_factory=list)
    num_iterations: int = ITERATIONS
    accumulate: int = 1
    first_keys: tuple[str, ...] = ("test", "seconds")
    loss_remedy: str = "train nothing"
    bad: tuple[int, int] | None = None  # epoch and iteration of a loss that is not finite

    @property
    def is_between_steps(self):
        done = self.position.iteration
        return done % self.accumulate == 0 or done == ITERATIONS

    def items(self):
        yield from range(self.position.iteration, ITERATIONS)

    def train(self, item):
        self.trained.append((self.position.epoch, item))
        loss = torch.tensor(float(self.position.epoch + 1 + item))
        if (self.position.epoch, item) == self.bad:
            loss /= 0
        return Totals(loss_count=2, unread={"loss_sum": loss, "tried": torch.tensor(1)})

    def step_record(self, totals):
        return {}

    def epoch_record(self):
        return {}

    def validate(self):
        self.validated.append(self.position.epoch + 1)
        return Validation(SCORES[self.position.epoch + 1])

    def save(self, best):
        self.saved.append((self.position.epoch, self.position.iteration, best))

    def test(self):
        return {"test": 1.0}


def run(
    trainee, path, *, epochs=7, eval_every=1, patience=0, every_steps=0, every_epochs=0, **saves
):
    (path / "run").mkdir(exist_ok=True)
    config = load_config("base", [f"train.epochs={epochs}", "metrics.loggers=[]"])
    cadence = Cadence(epochs, eval_every, patience, every_steps, every_epochs, **saves)
    with (
        RunLog() as log,
        open_records(
            config,
            path / "run",
            World(),
            log,
            store=path,
            position=trainee.position,
            num_iterations=ITERATIONS,
            in_words=lambda record: "",
            step_scalars=("loss",),
        ) as records,
    ):
        return Loop(trainee, cadence, records, World(), path).run()


@pytest.mark.parametrize(
    ("eval_every", "epochs", "validated"),
    [(1, 3, [1, 2, 3]), (2, 4, [2, 4]), (2, 5, [2, 4, 5]), (0, 3, [3]), (9, 3, [3]), (None, 3, [])],
)
def test_the_last_epoch_is_always_validated(tmp_path, eval_every, epochs, validated):
    trainee = Counted()
    summary = run(trainee, tmp_path, epochs=epochs, eval_every=eval_every)
    assert trainee.validated == validated
    best = max(validated, key=SCORES.__getitem__) if validated else None
    assert summary["best_epoch"] == best
    assert trainee.position.best == (SCORES[best] if best else None)


def test_too_many_validations_that_are_no_better_end_training(tmp_path):
    trainee = Counted()
    summary = run(trainee, tmp_path, patience=2)
    assert trainee.validated == [1, 2, 3, 4]
    assert (summary["best_epoch"], summary["epochs"], summary["stopped_early"]) == (2, 4, True)
    trainee = Counted()
    summary = run(trainee, tmp_path, patience=3)
    assert (summary["best_epoch"], summary["epochs"], summary["stopped_early"]) == (5, 7, False)


def test_a_validation_that_only_a_shorter_run_has_does_not_count(tmp_path):
    """Continued with more epochs, such a run goes on like one that had them from the start."""
    trainee = Counted()
    assert not run(trainee, tmp_path, patience=1, eval_every=2, epochs=3)["stopped_early"]
    assert trainee.validated == [2, 3]
    run(trainee, tmp_path, patience=1, eval_every=2)
    assert trainee.validated == [2, 3, 4]


@pytest.mark.parametrize(
    ("options", "saved"),
    [
        ({"every_epochs": 2}, [(2, 0, False)]),
        ({"saves_last": True}, [(3, 0, False)]),
        ({"saves_best": True}, [(1, 0, True), (2, 0, True)]),
        ({"every_steps": 3}, [(0, 3, False), (1, 2, False), (2, 1, False), (2, 4, False)]),
        ({"every_epochs": 1, "saves_best": True}, [(1, 0, True), (2, 0, True), (3, 0, False)]),
    ],
)
def test_checkpoints_are_written_when_due(tmp_path, options, saved):
    """Iterations count from the start of the run."""
    trainee = Counted()
    run(trainee, tmp_path, epochs=3, **options)
    assert trainee.saved == saved


@pytest.mark.parametrize(
    ("accumulate", "every_steps", "saved"),
    [
        (2, 3, [(0, 4, False), (1, 2, False), (2, 2, False), (2, 4, False)]),
        (3, 2, [(epoch, at, False) for epoch in range(3) for at in (3, 4)]),
        (9, 1, [(0, 4, False), (1, 4, False), (2, 4, False)]),
    ],
)
def test_checkpoints_wait_for_the_end_of_a_step(tmp_path, accumulate, every_steps, saved):
    trainee = Counted(accumulate=accumulate)
    run(trainee, tmp_path, epochs=3, every_steps=every_steps)
    assert trainee.saved == saved


@pytest.mark.parametrize(
    ("accumulate", "at", "after"), [(1, 2, 2), (3, 1, 2), (3, 3, 3), (4, 0, 3), (2, 1, 1)]
)
def test_a_run_continues_in_mid_epoch_to_the_same_records(tmp_path, accumulate, at, after):
    """A signal stops it at the end of an optimiser step, even if it is seen only once."""
    run(Counted(), tmp_path, epochs=2)
    whole = records(tmp_path)
    half = Counted(accumulate=accumulate)
    monkey = half.train

    def train(item):
        is_signalled = half.position.epoch == 1 and item == at
        signals._received = signals.signal.SIGTERM if is_signalled else None
        return monkey(item)

    half.train = train
    try:
        with pytest.raises(signals.Stopped, match=f"epoch 2, iteration {after}; a checkpoint"):
            run(half, tmp_path, epochs=2)
    finally:
        signals._received = None
    assert half.saved == [(1, after + 1, False)]
    rest = Counted(Position(**half.position.model_dump()))
    run(rest, tmp_path, epochs=2)
    assert rest.trained == [(1, item) for item in range(after + 1, ITERATIONS)]
    assert records(tmp_path) == whole


def records(path):
    lines = map(json.loads, (path / "run" / "metrics.jsonl").read_text().splitlines())
    return [(line["kind"], line["epoch"], line.get("iteration"), line["loss"]) for line in lines]


def test_losses_are_means_over_iterations_and_epochs(tmp_path):
    run(Counted(), tmp_path, epochs=2)
    assert records(tmp_path) == [
        *[("step", 1, i, (1 + i) / 2) for i in range(4)],
        ("epoch", 1, None, 10 / 8),
        *[("step", 2, i, (2 + i) / 2) for i in range(4)],
        ("epoch", 2, None, 14 / 8),
    ]


def test_a_loss_that_is_not_finite_says_when(tmp_path):
    trainee = Counted()

    def fail(item):
        raise FloatingPointError("the loss is nan")

    trainee.train = fail
    with pytest.raises(RuntimeError, match=r"^epoch 1, iteration 0: the loss is nan$"):
        run(trainee, tmp_path)


@pytest.mark.parametrize(
    ("bad", "read_every", "every_steps", "trained", "saved"),
    [
        ((0, 2), 1, 0, 3, []),
        ((0, 1), 3, 0, 3, []),
        ((0, 3), 3, 0, 4, []),  # at the end of the epoch, before its checkpoint
        ((1, 0), 9, 2, 6, [(0, 2, False), (0, 4, False), (1, 0, False)]),  # before the next one
    ],
)
def test_no_checkpoint_follows_a_loss_that_is_not_finite(
    tmp_path, bad, read_every, every_steps, trained, saved
):
    trainee = Counted(bad=bad)
    place = f"epoch {bad[0] + 1}, iteration {bad[1]}"
    with pytest.raises(RuntimeError, match=f"^{place}: the loss is inf; train nothing$"):
        run(
            trainee,
            tmp_path,
            read_every=read_every,
            every_steps=every_steps,
            every_epochs=1,
            eval_every=None,
        )
    assert (len(trainee.trained), trainee.saved) == (trained, saved)
    steps = [(epoch - 1, i) for kind, epoch, i, _ in records(tmp_path) if kind == "step"]
    assert steps == trainee.trained[: trainee.trained.index(bad)]


@pytest.mark.parametrize("read_every", [2, 3, 9])
def test_records_are_those_of_losses_that_are_read_at_once(tmp_path, read_every):
    trainees = Counted(), Counted()
    for trainee, often in zip(trainees, (1, read_every), strict=True):
        (tmp_path / str(often)).mkdir()
        run(trainee, tmp_path / str(often), epochs=2, every_steps=3, read_every=often)
    assert records(tmp_path / "1") == records(tmp_path / str(read_every))
    assert trainees[0].saved == trainees[1].saved


def test_a_signal_does_not_wait_for_losses_to_be_read(tmp_path):
    trainee = Counted()
    train = trainee.train

    def signalled(item):
        signals._received = signals.signal.SIGTERM
        return train(item)

    trainee.train = signalled
    try:
        with pytest.raises(signals.Stopped, match="epoch 1, iteration 0; a checkpoint"):
            run(trainee, tmp_path, read_every=3)
    finally:
        signals._received = None
    assert trainee.saved == [(0, 1, False)]


def test_the_summary_starts_as_the_trainee_wants(tmp_path):
    """With keys of the trainee and of the loop; the others follow."""
    trainee = Counted()
    trainee.first_keys = ("world_size", "test", "seconds")
    summary = run(trainee, tmp_path, epochs=1)
    assert list(summary)[:3] == ["world_size", "test", "seconds"]
    assert None not in [summary[key] for key in ("epochs", "best_epoch", "stopped_early")]
    assert list(json.loads((tmp_path / "run" / "result.json").read_text())) == list(summary)
