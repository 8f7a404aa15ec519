"""Opens the store that embeddings are trained on, and checks it."""

from __future__ import annotations

from lsm.data.format import files_digest
from lsm.data.triples.store import TripleStore
from lsm.embed.config import EmbedConfig
from lsm.run.fingerprint import contents_of
from lsm.run.store import open_at


def open_store(config: EmbedConfig) -> TripleStore:
    """Opens the store at ``data.path``, checked to have all that training needs."""
    options = config.embed
    remedy = "give a store of triples (`lsm data convert triples` makes one)"
    store = open_at(config.data.path, TripleStore.open, remedy)
    if options.partitions > store.meta.parts:
        raise ValueError(
            f"embed.partitions: expected at most {store.meta.parts}, for the "
            f"{store.num_entities} entities of {store.path}, got {options.partitions}"
        )
    if options.for_graph(store.num_relations).has_relations and not store.num_relations:
        raise ValueError(
            f"embed.model: {options.model} needs relations, and {store.path} has none; set "
            "embed.model=dot"
        )
    if not store.num_edges["train"]:
        raise ValueError(f"data.path: {store.path} has no training edges")
    return store


def identity(store: TripleStore) -> dict[str, object]:
    """The facts that identify ``store``. Stores of one source with different seeds number
    entities differently."""
    return {
        "name": store.name,
        "seed": store.meta.seed,
        "entities": store.num_entities,
        "relations": store.num_relations,
        "edges": store.num_edges,
    }


def contents(store: TripleStore) -> dict[str, str]:
    """The setting that the files of ``store`` have their contents."""
    return contents_of("data.path", files_digest(store.meta.files))
