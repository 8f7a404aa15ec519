"""Batches of edges that embeddings are trained on per second, on a GPU. Part of ``bench/gpu.py``.

A batch has random edges, of which both sides are corrupted, and chunks that share negatives; the
table, with Adagrad's state, is in GPU memory. The time is that of EdgeTrainer.train: draws,
queries, scores, losses, gradients and updates. Each model trains with matrix products of float32
and, where scores are such products, of TF32, which Legend takes; those models train once with
stored scores and once with the fused softmax. ``products`` are the three products of such a batch
alone, by the same arithmetic. If the fused softmax fails, stored scores are measured all the same,
and ``error`` names the failure. The twins have it by Triton's interpreter only. Legend takes 10.4
ms for the gradients of such a batch on an A100.
"""

from __future__ import annotations

import argparse
import itertools
import os
import traceback
from collections.abc import Callable

import torch

from lsm.embed.adagrad import initial_rows
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.gradients.edge_gradients import Tables, Workspace, gradients_of
from lsm.embed.gradients.gpu_gradients import gradients_on_gpu
from lsm.embed.models.models import MODELS
from lsm.embed.options import EmbedOptions

Timed = Callable[[Callable[[], None], int], list[float]]
Rates = Callable[[float, list[float], str], dict[str, float]]
PRECISIONS = {"fp32": "highest", "tf32": "high"}


def random_edges(args: argparse.Namespace, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(1)
    limits = (args.embed_nodes, args.embed_relations, args.embed_nodes)
    shape = (args.embed_edges,)
    columns = [torch.randint(n, shape, generator=generator, device=device) for n in limits]
    return torch.stack(columns, 1)


def options_of(args: argparse.Namespace, model: str, gpu_scores: str) -> EmbedOptions:
    return EmbedOptions(
        model=model,
        dim=args.embed_dim,
        num_negatives=args.embed_negatives,
        init_scale=0.1,
        regularizer="none",
        gpu_scores=gpu_scores,
    )


def methods(model: str, device: torch.device) -> tuple[str, ...]:
    """The values of embed.gpu_scores that the model can be measured with."""
    has_triton = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return ("stored", "fused") if MODELS[model].takes("fused") and has_triton else ("stored",)


def new_tables(options: EmbedOptions, args: argparse.Namespace, device: torch.device):
    rows = initial_rows(options, args.embed_nodes, seed=1).to(device)
    relations = initial_rows(options, options.relation_rows(args.embed_relations), seed=2)
    return rows, relations.to(device)


def check(options: EmbedOptions, args: argparse.Namespace, device: torch.device) -> None:
    """Raises RuntimeError unless a batch has the gradients that torch computes in float64 there."""
    options = options.model_copy(update={"num_negatives": "all"})
    tables = [table[:, : options.dim] for table in new_tables(options, args, device)]
    if not options.has_relations:
        tables[1] = None
    edges, candidates = random_edges(args, device)[:1000], [(0, min(1000, args.embed_nodes))]
    made = []
    for method, dtype in ((gradients_on_gpu, torch.float32), (gradients_of, torch.float64)):
        typed = Tables(*(None if table is None else table.to(dtype) for table in tables))
        generator = torch.Generator(device).manual_seed(1)
        found = method(options, typed, edges, candidates, generator, Workspace())
        dense = torch.zeros_like(typed.entities, dtype=torch.float64)
        dense.index_add_(0, found.ids, found.grads.double())
        made.append((found.loss, dense, found.relations))
    (loss, rows, relations), (expected, *wanted) = made
    # A gradient of transe_l1 jumps where float64 has another sign of a difference.
    atol = 1e-2 if options.model == "transe_l1" else 1e-4
    close = abs(loss - expected) < 1e-4 * abs(expected)
    close &= torch.allclose(rows, wanted[0], rtol=1e-3, atol=atol)
    if relations is not None:
        close &= torch.allclose(relations.double(), wanted[1], rtol=1e-3, atol=atol)
    if not close:
        most = [(rows - wanted[0]).abs().max().item()]
        if relations is not None:
            most.append((relations.double() - wanted[1]).abs().max().item())
        raise RuntimeError(
            f"{options.model}, {options.gpu_scores}: the gradients differ from those of float64, "
            f"by up to {most}"
        )


def products(args: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    """The matrix products of both sides of a batch, in chunks as a batch has them."""
    chunk = min(EmbedOptions().chunk, args.embed_edges)
    chunks = max(1, 2 * args.embed_edges // chunk)
    queries = torch.ones(chunks, chunk, args.embed_dim, device=device)
    entities = torch.ones(chunks, args.embed_negatives, args.embed_dim, device=device)
    scores = torch.empty(chunks, chunk, args.embed_negatives, device=device)
    of_queries, of_entities = torch.empty_like(queries), torch.empty_like(entities)

    def multiply() -> None:
        torch.bmm(queries, entities.mT, out=scores)
        torch.bmm(scores, entities, out=of_queries)
        torch.bmm(scores.mT, queries, out=of_entities)

    return multiply


def bench_model(
    options: EmbedOptions,
    edges: torch.Tensor,
    args: argparse.Namespace,
    device: torch.device,
    timed: Timed,
    rates: Rates,
) -> dict:
    """Batches per second of a model and a method, by precision."""
    results: dict = {}
    torch.set_float32_matmul_precision("highest")
    if args.check:
        check(options, args, device)
    for name, precision in PRECISIONS.items():
        if name != "fp32" and not options.edge_model.takes("fused"):
            continue
        torch.set_float32_matmul_precision(precision)
        train = new_training(options, edges, args, device)
        spent = timed(train, args.rounds)
        key = options.model if name == "fp32" else f"{options.model}_{name}"
        key = f"{key}_fused" if options.gpu_scores == "fused" else key
        results[key] = rates(1, spent, "batches_per_s")
        results[key]["ms"] = 1e3 / results[key]["batches_per_s"]
        del train
    return results


def new_training(
    options: EmbedOptions, edges: torch.Tensor, args: argparse.Namespace, device: torch.device
) -> Callable[[], None]:
    """A function that trains on the batch, with tables of its own."""
    rows, relations = new_tables(options, args, device)
    trainer = EdgeTrainer(rows, relations, options, is_twin=device.type == "cpu")
    candidates, steps = [(0, args.embed_nodes)], itertools.count()

    def train() -> None:
        trainer.train(edges, candidates, seed=0, step=next(steps))

    return train


def bench_embed(args: argparse.Namespace, device: torch.device, timed: Timed, rates: Rates) -> dict:
    edges = random_edges(args, device)
    results: dict = {}
    for name, precision in PRECISIONS.items():
        torch.set_float32_matmul_precision(precision)
        results[f"products_{name}"] = rates(
            1, timed(products(args, device), args.rounds), "batches_per_s"
        )
    for model in MODELS:
        for method in methods(model, device):
            try:
                options = options_of(args, model, method)
                results |= bench_model(options, edges, args, device, timed, rates)
            except Exception as error:
                if method == "stored":
                    raise
                traceback.print_exc()
                results["error"] = f"{model}, fused: {type(error).__name__}: {error}"
    torch.set_float32_matmul_precision("highest")
    return results | {f"fastest_{model}": fastest(results, model) for model in MODELS}


def fastest(results: dict, model: str) -> dict:
    """The result of a model by the precision and the method that are fastest."""
    keys = [f"{model}{more}" for more in ("", "_tf32", "_fused", "_tf32_fused")]
    measured = [results[key] | {"of": key} for key in keys if key in results]
    return max(measured, key=lambda result: result["batches_per_s"])
