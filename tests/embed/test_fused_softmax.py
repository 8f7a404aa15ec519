"""The fused softmax: by Triton's interpreter against float64, and compiled without a GPU."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lsm.embed.adagrad import initial_rows
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.models.comparators import Dot
from lsm.embed.models.models import MODELS, models_for
from lsm.embed.options import LARGEST_FUSED_DIM, EmbedOptions
from support import interpreter
from support.gpus import WITHOUT_GPU
from support.interpreter import Interpreter, train_steps

triton = pytest.importorskip(
    "triton", reason="Triton is not installed; it has wheels for Linux on x86-64"
)


@pytest.fixture(scope="module")
def interpreted():
    """Runs a function of support.interpreter where kernels are interpreted."""
    process = Interpreter()
    yield process.run
    process.close()


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(least, end, *shape, seed):
    """Integers, so that float32 has their products exactly."""
    return torch.randint(least, end, shape, generator=torch.Generator().manual_seed(seed)).float()


def whole_from_to(least, end):
    return lambda *shape, seed: whole(least, end, *shape, seed=seed)


def make_batch(num_edges, chunk, num_negatives, dim, make=normal, most_id=9):
    """The fields of a ContrastBatch, and scores of edges. Ids repeat, and some are targets."""
    chunks = -(-num_edges // chunk)
    queries = make(2, num_edges, dim, seed=1)
    entities = make(2, chunks, num_negatives, dim, seed=2)
    ids = whole(0, most_id, 2, chunks, num_negatives, seed=3).int()
    targets = whole(0, most_id, 2, num_edges, seed=4).int()
    return (queries, entities, ids, targets, chunk), normal(2, num_edges, seed=5)


def reference(model, batch, positives):
    """As support.interpreter.contrast, by torch's autograd in float64, edge by edge."""
    queries, entities, ids, targets, chunk = batch
    leaves = [each.double().requires_grad_() for each in (positives, queries, entities)]
    losses = torch.zeros(positives.shape, dtype=torch.float64)
    for side in range(2):
        for edge in range(queries.shape[1]):
            query, others = leaves[1][side, edge], leaves[2][side, edge // chunk]
            scores = others @ query
            if model == "transe_l2":
                scores = -torch.linalg.vector_norm(others - query, dim=1)  # gradient 0 at 0
            scores = scores[ids[side, edge // chunk] != targets[side, edge]]
            positive = leaves[0][side, edge]
            loss = torch.cat((positive[None], scores)).logsumexp(0) - positive
            losses[side, edge] = loss.item()
            loss.backward()
    return losses, *(leaf.grad for leaf in leaves)


def compare(interpreted, model, batch, positives, tolerance=2e-5, **more):
    found = interpreted(interpreter.contrast, model, batch, positives, *more.values())
    for each, expected in zip(found, reference(model, batch, positives), strict=True):
        torch.testing.assert_close(each.double(), expected, rtol=tolerance, atol=tolerance)
    return found


KINDS = ["dot", "transe_l2"]
"""Distmult and complex score as dot does."""
# Edges, chunk, negatives, dim. Tiles are of 16 to 64 rows.
SIZES = [
    (1, 1, 1, 1),
    (7, 3, 5, 6),
    (9, 512, 40, 16),
    (70, 33, 31, 20),
    (64, 32, 64, 64),
    (80, 70, 69, 100),
    (30, 17, 20, 200),
    (18, 18, 19, 512),
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("dot", "highest"),
        ("transe_l2", "high"),
        pytest.param("dot", "high", marks=pytest.mark.slow),
        pytest.param("transe_l2", "highest", marks=pytest.mark.slow),
    ],
)
def test_gradients(interpreted, model, sizes, precision):
    """Chunks and blocks with a rest, a short last chunk, equal ids and targets. Both tables of
    tiles; the interpreter multiplies in float32 for both."""
    batch, positives = make_batch(*sizes)
    batch[0].mul_(sizes[3] ** -0.5)
    if model == "transe_l2":
        positives -= sizes[3] ** 0.5  # among the negatives' scores
    compare(interpreted, model, batch, positives, precision=precision)


@pytest.mark.parametrize("model", KINDS)
def test_all_negatives_may_be_targets(interpreted, model):
    """Then the loss is 0, and so are all gradients."""
    batch, positives = make_batch(20, 8, 30, 10, most_id=1)
    found = compare(interpreted, model, batch, positives)
    assert not any(each.any() for each in found)


def test_distances_of_zero_have_no_gradient(interpreted):
    """Of integers, whose distances are exact. Half of the negatives equal a query."""
    batch, positives = make_batch(40, 20, 36, 5, whole_from_to(-2, 3))
    queries, entities = batch[0].view(2, 2, 20, 5), batch[1]
    entities[:, :, ::2] = queries[:, :, :18]
    found = compare(interpreted, "transe_l2", batch, positives)
    assert all(torch.isfinite(each).all() for each in found)


@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_large_scores(interpreted, size):
    """Their exponentials overflow, or all are 0. float32 has the scores exactly."""
    batch, _ = make_batch(40, 25, 50, 12, whole_from_to(-30, 31), most_id=99)
    queries, entities = batch[:2]
    queries[..., 0], entities[..., 0] = 100, size / 100
    # Half of the negatives score as the edge does.
    entities[:, :, ::2] = entities[:, :, :1]
    positives = (queries * entities[:, torch.arange(40) // 25, 0]).sum(-1)
    assert positives.abs().min() > 5e3
    compare(interpreted, "dot", batch, positives)


def test_large_distances(interpreted):
    """All exponentials are 0. float32 has the squares exactly, and distances to 0.0003."""
    batch, _ = make_batch(40, 25, 50, 12, whole_from_to(-10, 11), most_id=99)
    queries, entities = batch[:2]
    queries[..., 0], entities[..., 0] = 0, 4000
    entities[:, :, ::2] = entities[:, :, :1]
    differences = queries - entities[:, torch.arange(40) // 25, 0]
    positives = -torch.linalg.vector_norm(differences, dim=-1)
    compare(interpreted, "transe_l2", batch, positives, tolerance=1e-3)


@pytest.mark.parametrize("model", KINDS)
def test_a_negative_that_is_not_a_number_shows_in_the_loss(interpreted, model):
    batch, positives = make_batch(9, 5, 20, 6, most_id=99)
    batch[1][1, 0, 19, 5] = torch.nan
    losses = interpreted(interpreter.contrast, model, batch, positives)[0]
    sees = batch[2][1, 0, 19] != batch[3][1, :5]
    assert sees.any()
    assert torch.equal(losses[1, :5].isnan(), sees)
    assert not losses[0].isnan().any()


NODES, RELATIONS, CANDIDATES = 40, 3, [(30, 40), (0, 25)]


def random_batches():
    columns = [
        whole(0, n, 3, 23, seed=n + k).long() for k, n in enumerate((NODES, RELATIONS, NODES))
    ]
    return list(torch.stack(columns, 2))


def options_of(**values):
    base = {"dim": 6, "chunk": 5, "num_negatives": 30, "init_scale": 0.5, "gpu_scores": "fused"}
    return EmbedOptions(**(base | values))


def assert_are_stored_steps(found, options, arguments):
    """``found``: losses and tables of ``options``; with stored scores, they are close."""
    stored = train_steps(options.model_copy(update={"gpu_scores": "stored"}), *arguments)
    assert found[0] == pytest.approx(stored[0], rel=1e-5)
    for table, expected in zip(found[1:], stored[1:], strict=True):
        # Adagrad's first step is the sign of a gradient, however small.
        torch.testing.assert_close(table, expected, rtol=1e-3, atol=1e-3)


STEPS = (
    {},
    {"num_negatives": "all"},
    {"regularizer": "n3", "regularizer_weight": 0.1},
    {"dim": 130},
)


@pytest.mark.parametrize("values", STEPS, ids="-".join)
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=[] if model in KINDS else pytest.mark.slow)
        for model in models_for("fused")
    ],
)
def test_steps_are_those_of_stored_scores(interpreted, model, values):
    options = options_of(model=model, **values)
    arguments = (NODES, RELATIONS), random_batches(), CANDIDATES, 10
    assert_are_stored_steps(interpreted(train_steps, options, *arguments), options, arguments)


@pytest.mark.parametrize("model", KINDS)
def test_steps_over_partitions_are_those_of_stored_scores_and_repeat_themselves(interpreted, model):
    options = options_of(model=model, partitions=8)
    arguments = (NODES, RELATIONS), random_batches(), CANDIDATES, 10
    found, again = (interpreted(train_steps, options, *arguments) for _ in range(2))
    assert found[0] == again[0]
    assert all(map(torch.equal, found[1:], again[1:]))
    assert_are_stored_steps(found, options, arguments)


def test_without_triton_the_option_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "lsm.embed.gradients.fused_softmax", raising=False)
    options = options_of(model="dot")
    rows = initial_rows(options, NODES, 1)
    EdgeTrainer(rows, None, options)  # the host ignores it
    with pytest.raises(RuntimeError, match=r"fused needs Triton.*embed.gpu_scores=stored"):
        EdgeTrainer(rows, None, options, is_twin=True)


POINTERS = {"ids": "*i32", "targets": "*i32", "firsts": "*i32"}
SHARED_BYTES = {80: 163 << 10, 90: 227 << 10}
"""That a program may have, by compute capability."""


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Compiles a kernel for a compute capability: its PTX, bytes of shared memory of a program, and
    bytes of a thread's stack, where registers are spilled to."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    def run(kernel, capability, constants):
        options = {key: value for key, value in constants.items() if key.islower()}
        constants = {key: value for key, value in constants.items() if key.isupper()}
        names = kernel.arg_names
        signature = dict.fromkeys(names, "*fp32") | POINTERS | dict.fromkeys(constants, "constexpr")
        first = names.index("num_edges")
        numbers = names[first : names.index("partition_shift")]
        signature = {name: signature[name] for name in names} | dict.fromkeys(numbers, "i32")
        signature["partition_shift"] = "fp32"
        aligned = {(place,): [["tt.divisibility", 16]] for place in range(first)}
        source = ASTSource(kernel, signature, constants, aligned)
        made = triton.compile(source, GPUTarget("cuda", capability, 32), options)
        path = tmp_path / "kernel.cubin"
        path.write_bytes(made.asm["cubin"])
        program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run(
            [program, "-res-usage", path], capture_output=True, text=True, check=True, timeout=300
        )
        stack = int(re.search(r"STACK:(\d+)", usage.stdout)[1])
        return made.asm["ptx"], made.metadata.shared, stack

    return run


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("dim", [100, 256, LARGEST_FUSED_DIM])
@pytest.mark.parametrize("model", KINDS)
def test_kernels_compile_for_a_gpu(compiled, model, dim, precision, capability):
    """With tensor cores for TF32, without for float32, and with next to no spilled registers. A
    shift of scores only adds to the kernels."""
    from lsm.embed.gradients import fused_softmax

    comparator = MODELS[model].comparator
    constants = fused_softmax.constants_of(comparator, dim, precision, is_shifted=True)
    for kernel in (fused_softmax.edges_kernel, fused_softmax.negatives_kernel):
        ptx, shared_bytes, stack_bytes = compiled(kernel, capability, constants)
        products = set(re.findall(r"\b(?:mma\.sync|wgmma\.mma_async)\S*", ptx))
        assert all(".tf32.tf32" in product for product in products)
        assert bool(products) == (precision == "tf32")
        if capability == 90 and constants["HELD"] == 64:
            assert all(product.startswith("wgmma") for product in products)
        assert not re.search(r"\b(atom|red)\.", ptx)
        assert ("max.NaN.f32" in ptx) == (model == "transe_l2")  # which the interpreter has anyway
        assert shared_bytes <= SHARED_BYTES[capability]
        assert stack_bytes <= 128


@pytest.fixture
def launches(tmp_path, monkeypatch):
    """The launches of kernels for a GPU of compute capability 9.0 that is not there: each a name, a
    grid, and the kernel that was compiled for it."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    gpu = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda _device: 0,
    )
    made = []
    run = JITFunction.run

    def only_compile(self, *arguments, grid, warmup, **more):
        made.append((self.__name__, grid, run(self, *arguments, grid=grid, warmup=True, **more)))

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(JITFunction, "run", only_compile)
    driver.set_active(gpu)
    yield made
    driver.set_active(None)
    torch.set_float32_matmul_precision("highest")


@WITHOUT_GPU  # its tests launch the kernels themselves
@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_batches_of_any_size_launch_the_same_kernels(launches, precision):
    """The interpreter has launches of its own. Compiling takes a second."""
    from lsm.embed.gradients.fused_softmax import ContrastBatch, constants_of, contrast

    torch.set_float32_matmul_precision("highest" if precision == "ieee" else "high")
    wanted, held = [], constants_of(Dot(), 100, precision)["HELD"]
    for num_edges, chunk, num_negatives in [(7, 3, 5), (1, 1, 1), (64, 16, 32), (300, 512, 160)]:
        batch, positives = make_batch(num_edges, chunk, num_negatives, 100)
        outputs = torch.empty_like(positives), *map(torch.empty_like, batch[:2])
        contrast(Dot(), ContrastBatch(*batch), positives, *outputs)
        chunks = 2 * -(-num_edges // chunk)
        wanted += [
            ("edges_kernel", (chunks * -(-min(chunk, num_edges) // held),)),
            ("negatives_kernel", (chunks * -(-num_negatives // held),)),
        ]
    assert [launch[:2] for launch in launches] == wanted
    compiled = {id(kernel): kernel for _, _, kernel in launches}
    assert len(compiled) == 2
    for kernel in compiled.values():
        assert (".tf32.tf32" in kernel.asm["ptx"]) == (precision == "tf32")
