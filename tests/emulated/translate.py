"""Writes the .cu files and the headers that need it as C++ for the emulated GPU.

translate.py ROOT OUT: launches become calls of emulated::launch(), the store to a register of a
device one of emulated::store_mmio(), and every mutation of mutations.py is planted behind a check
whether the run asks for it. Files that stay the same are not written, so the compiler takes the
tree's own.
"""

import re
import sys
from pathlib import Path

from mutations import MUTATIONS

BOUNDS = re.compile(r"__launch_bounds__\(([^()]*)\)\s+(\w+)\(")
LAUNCH = re.compile(r"\b([A-Za-z_]\w*)<<<")
MMIO = re.compile(
    r'asm volatile\("st\.mmio\.relaxed\.sys\.global\.u32 \[%0\], %1;"\s*::'
    r'"l"\((\w+)\), "r"\((\w+)\)\s*: "memory"\);'
)


def closing(text: str, start: int) -> int:
    """Where the bracket that opens at ``start`` closes."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError(f"no closing bracket: {text[start : start + 60]!r}")


def translate(text: str) -> str:
    parts, done = [], 0
    bounds = {kernel: threads for threads, kernel in BOUNDS.findall(text)}
    while found := LAUNCH.search(text, done):
        shape_end = text.index(">>>(", found.end())
        end = closing(text, shape_end + 3)
        kernel, shape = found[1], text[found.end() : shape_end]
        arguments = text[shape_end + 4 : end]
        made = f"::emulated::make_shape({shape})"
        if kernel in bounds:
            made = f"::emulated::with_bounds({made}, {bounds[kernel]})"
        parts += [
            text[done : found.start()],
            f'::emulated::launch("{kernel}", {made}, ',
            f"[](const auto&... parameters) {{ {kernel}(parameters...); }}, {arguments})",
        ]
        done = end + 1
    return MMIO.sub(r"::emulated::store_mmio(\1, \2);", "".join(parts) + text[done:])


def plant(text: str, name: str, old: str, new: str) -> str:
    """Replaces ``old`` by ``new`` in the runs of the mutation."""
    if text.count(old) != 1:
        raise SystemExit(f"mutations.py: {name}: its line is not in the file once: {old!r}")
    return text.replace(old, new.replace("PLANTED", f'::emulated::is_planted("{name}")'))


def main() -> None:
    root, out = (Path(argument) for argument in sys.argv[1:])
    sources = [p for d in ("kernels", "cache", "comm") for p in (root / d).rglob("*.[hc]*")]
    written = set()
    for source in sorted(s for s in sources if s.suffix in (".h", ".cu")):
        name = source.relative_to(root).as_posix()
        original = source.read_text()
        text = original
        for mutation in MUTATIONS:
            if mutation.file == name:
                text = plant(text, mutation.name, mutation.old, mutation.new)
        text = translate(text)
        if text == original and source.suffix == ".h":
            continue
        target = out / (name + ".cpp" if source.suffix == ".cu" else name)
        text = f'#line 1 "{source}"\n{text}'
        written.add(target)
        if not target.exists() or target.read_text() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    for stale in out.rglob("*.*"):
        if stale.is_file() and stale not in written:
            stale.unlink()


main()
