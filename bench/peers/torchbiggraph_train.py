"""Edges that PyTorch-BigGraph trains per CPU-second (peer measurement).

Measures: its `Trainer.process_one_batch` on random edges, which is what each of its training
processes runs: scores, softmax loss, gradients, updates; both sides corrupted. All embeddings are
in memory, in one partition. Relations are dynamic, since thousands of others would each take
batches of their own; the operator is complex_diagonal, the comparator dot. With `--negatives`
uniform negatives and none of the batch, its chunks have as many edges as negatives. The optimizer
of entities is its own, with one sum per row.

Input: sizes. Output: one line of JSON on stdout, with the rate of each of `--rounds` batches.
CPU-seconds are those of the process.

Needs torchbiggraph 1.0.0.
"""

import argparse
import json
import time


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--negatives", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--relations", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def make_config(args):
    from torchbiggraph.config import ConfigSchema, EntitySchema, RelationSchema

    relation = RelationSchema(name="all", lhs="node", rhs="node", operator="complex_diagonal")
    return ConfigSchema(
        entities={"node": EntitySchema(num_partitions=1)},
        relations=[relation],
        dynamic_relations=True,
        dimension=args.dim,
        comparator="dot",
        loss_fn="softmax",
        num_uniform_negs=args.negatives,
        num_batch_negs=0,
        batch_size=args.batch_size,
        entity_path="",
        edge_paths=[""],
        checkpoint_path="",
    )


def make_model(args, config):
    from torchbiggraph.model import COMPARATORS, MultiRelationEmbedder, instantiate_operator
    from torchbiggraph.types import Side

    operators = [
        [instantiate_operator("complex_diagonal", side, args.relations, args.dim)]
        for side in (Side.LHS, Side.RHS)
    ]
    return MultiRelationEmbedder(
        args.dim,
        config.relations,
        config.entities,
        num_uniform_negs=config.num_uniform_negs,
        num_batch_negs=config.num_batch_negs,
        disable_lhs_negs=False,
        disable_rhs_negs=False,
        lhs_operators=operators[0],
        rhs_operators=operators[1],
        comparator=COMPARATORS.get_class("dot")(),
        num_dynamic_rels=args.relations,
    )


def main():
    args = parse_args()
    import torch
    from torch.optim import Adagrad
    from torchbiggraph.edgelist import EdgeList
    from torchbiggraph.entitylist import EntityList
    from torchbiggraph.row_adagrad import RowAdagrad
    from torchbiggraph.train import Trainer
    from torchbiggraph.types import Side

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    config = make_config(args)
    model = make_model(args, config)
    rows = torch.nn.Parameter(0.1 * torch.randn(args.nodes, args.dim))
    for side in (Side.LHS, Side.RHS):
        model.set_embeddings("node", rows, side)
    trainer = Trainer(
        Adagrad([p for p in model.parameters() if p is not rows], lr=config.lr),
        config.loss_fn,
        config.margin,
        config.relations,
    )
    trainer.entity_optimizers["node", 0] = RowAdagrad([rows], lr=config.lr)

    def train():
        heads, relations, tails = (
            torch.randint(n, (args.batch_size,)) for n in (args.nodes, args.relations, args.nodes)
        )
        lists = (EntityList.from_tensor(each) for each in (heads, tails))
        edges = EdgeList(*lists, relations)
        start = time.process_time()
        trainer.process_one_batch(model, edges)
        return args.batch_size / (time.process_time() - start)

    train()
    print(json.dumps({"edges_per_cpu_s": [train() for _ in range(args.rounds)]}))


if __name__ == "__main__":
    main()
