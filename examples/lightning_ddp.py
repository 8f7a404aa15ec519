"""Trains with Lightning on two processes:

python examples/lightning_ddp.py STORE --devices 2
"""

import argparse

import lightning
import torch
from torch.nn import functional
from torch_geometric.nn import GraphSAGE

import lsm


class Graph(lightning.LightningDataModule):
    """The loaders of a store; each process opens its own, at its rank."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def open(self, split: str, **options: bool) -> lsm.NeighborLoader:
        assert self.trainer is not None
        return lsm.NeighborLoader(
            self.path,
            [10, 5],
            split,
            batch_size=256,  # per rank
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
            cache={"bytes": "64MiB"},
            **options,
        )

    def train_dataloader(self) -> lsm.NeighborLoader:
        return self.open("train", shuffle=True, drop_last=True)

    def val_dataloader(self) -> lsm.NeighborLoader:
        return self.open("val")


class Classifier(lightning.LightningModule):
    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.model = GraphSAGE(dim, 64, num_layers=2, out_channels=num_classes)

    def loss(self, batch: lsm.Batch) -> torch.Tensor:
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        return functional.cross_entropy(out, batch.y)

    def training_step(self, batch: lsm.Batch) -> torch.Tensor:
        loss = self.loss(batch)
        hits = batch.stats["hits"] / batch.stats["requests"]
        self.log("loss", loss, batch_size=batch.batch_size)
        self.log("hits", hits, batch_size=batch.batch_size)
        return loss

    def validation_step(self, batch: lsm.Batch) -> None:
        loss, size = self.loss(batch), batch.batch_size
        self.log("valid_loss", loss, batch_size=size, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Print(lightning.Callback):
    def on_validation_epoch_end(
        self, trainer: lightning.Trainer, module: lightning.LightningModule
    ) -> None:
        loss = trainer.callback_metrics["valid_loss"]
        if trainer.is_global_zero and not trainer.sanity_checking:
            print(f"epoch {trainer.current_epoch + 1}: loss {loss:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    store = lsm.GraphStore.open(arguments.store)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=arguments.devices,
        strategy="ddp" if arguments.devices > 1 else "auto",
        max_epochs=arguments.epochs,
        use_distributed_sampler=False,  # the loader divides the seeds
        callbacks=[Print()],
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    model = Classifier(store.feature_dim, store.num_classes)
    trainer.fit(model, datamodule=Graph(arguments.store))


if __name__ == "__main__":
    main()
