"""Kernels in Triton, run on the host by Triton's interpreter.

It must be chosen before Triton is imported, and is then the only way to run kernels. So it has a
process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import torch

from lsm.embed.adagrad import initial_rows
from lsm.embed.edge_trainer import EdgeTrainer

CASE_SECS = 300


class Interpreter:
    """A process in which kernels are interpreted."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_choose)

    def run(self, case, *arguments):
        """The result of a function of this module, there."""
        return self._pool.submit(case, *arguments).result(CASE_SECS)

    def close(self) -> None:
        self._pool.shutdown()


def _choose() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)


def contrast(model, batch, positives, precision="highest"):
    """The losses, and the gradients of edges' scores, of queries and of negatives. ``batch``: the
    fields of a ContrastBatch. The results are NaN first, so that a gap shows."""
    from lsm.embed.gradients.fused_softmax import ContrastBatch
    from lsm.embed.gradients.fused_softmax import contrast as run
    from lsm.embed.models.models import MODELS

    torch.set_float32_matmul_precision(precision)
    of_positives, losses = positives.clone(), torch.full_like(positives, torch.nan)
    of_queries, of_entities = (torch.full_like(rows, torch.nan) for rows in batch[:2])
    outputs = of_positives, losses, of_queries, of_entities
    run(MODELS[model].comparator, ContrastBatch(*batch), *outputs)
    return losses, of_positives, of_queries, of_entities


def train_steps(options, num_rows, batches, candidates, partition_rows=0):
    """Losses of EdgeTrainer, where the host stands for a GPU, and the tables after all batches."""
    rows = initial_rows(options, num_rows[0], 1)
    relations = initial_rows(options, options.relation_rows(num_rows[1]), 2)
    trainer = EdgeTrainer(rows, relations, options, partition_rows=partition_rows, is_twin=True)
    losses = [
        trainer.train(edges, candidates, seed=4, step=step).sum
        for step, edges in enumerate(batches)
    ]
    return losses, rows, relations
