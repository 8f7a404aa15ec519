"""mix64, the owner of an id, and Philox4x32-10 in plain integers."""

from __future__ import annotations

MASK32 = 2**32 - 1
MASK64 = 2**64 - 1


def mix64(x: int) -> int:
    """The 64-bit finaliser of MurmurHash3 (Appleby)."""
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK64
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK64
    return x ^ x >> 33


def owner(node: int, num_ranks: int, hash: str) -> int:
    """The rank that owns ``node``. mix64 mixes twice, under another constant than the one round
    that gives the set, so that owner and set do not come from the same bits."""
    mixed = mix64(mix64(node) ^ 0x9E3779B97F4A7C15) if hash == "mix64" else node
    return mixed % num_ranks


def philox4x32(counter: list[int], key: int) -> list[int]:
    """Ten rounds over four 32-bit words under a 64-bit key (Salmon et al., SC 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & MASK32, key >> 32
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1 = product1 >> 32 ^ c1 ^ k0, product1 & MASK32
        c2, c3 = product0 >> 32 ^ c3 ^ k1, product0 & MASK32
        k0, k1 = k0 + 0x9E3779B9 & MASK32, k1 + 0xBB67AE85 & MASK32
    return [c0, c1, c2, c3]
