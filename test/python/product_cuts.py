"""Operands of matrix products in either order of memory, as texts of kernels need them."""

from __future__ import annotations

#: Whether a and b have k along their rows.
ORDERS = [(along_a, along_b) for along_a in (True, False) for along_b in (True, False)]


def shapes_in_memory(
    m: int, n: int, k: int, a_along_k: bool, b_along_k: bool
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of a (m, k) and b (k, n)."""
    return (m, k) if a_along_k else (k, m), (n, k) if b_along_k else (k, n)


def indexing_maps(a_along_k: bool, b_along_k: bool, batch: str = "") -> str:
    """Of a, b and their product, over the loops m, n and k, behind ``batch``, which is "" or "z, "."""
    loops = ("m, k" if a_along_k else "k, m", "n, k" if b_along_k else "k, n", "m, n")
    return ", ".join(f"affine_map<({batch}m, n, k) -> ({batch}{own})>" for own in loops)
