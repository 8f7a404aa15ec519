"""Adagrad by torch, on any device and of any type."""

import torch


def update_rows_by_torch(options, rows, ids, grads):
    """``lsm.embed.adagrad.update_rows``, of which it is the reference."""
    unique, inverse = torch.unique(ids, return_inverse=True)
    total = grads.new_zeros(len(unique), options.dim).index_add_(0, inverse, grads)
    updated = rows[unique]
    embedding, state = updated[:, : options.dim], updated[:, options.dim :]
    squares = total.square()
    state += squares if options.optimizer == "adagrad" else squares.mean(1, keepdim=True)
    embedding.addcdiv_(total, state.sqrt().add_(options.eps), value=-options.lr)
    rows[unique] = updated
