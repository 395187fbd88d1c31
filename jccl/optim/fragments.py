"""Which leaves of the parameters are synchronised together.

Leaves named by layer (the first integer of their path) go to fragments in strides,
those without a layer (embedding, head, last norm) make fragment 0; without layers,
fragments are balanced by bytes. Bookkeeping while tracing; refuses empty fragments.

Source: strides by layer, Streaming DiLoCo, arXiv:2501.18512, section 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from jccl._host import path_text

Choice = int | Callable[[str], int]


class Fragments(NamedTuple):
    """Fragment of each leaf, in the order of flattening, and the leaves' paths."""

    number: int
    of: tuple[int, ...]
    paths: tuple[str, ...]

    def part(self, tree: Any, fragment: int) -> Any:
        """`tree` with None in place of all leaves of other fragments."""
        leaves, treedef = jax.tree.flatten(tree)
        kept = [
            leaf if owner == fragment else None
            for leaf, owner in zip(leaves, self.of, strict=True)
        ]
        return jax.tree.unflatten(treedef, kept)

    def merge(self, tree: Any, part: Any, fragment: int) -> Any:
        """`tree` with the leaves of one fragment taken from `part`."""
        leaves, treedef = jax.tree.flatten(tree)
        fresh = iter(jax.tree.leaves(part))
        return jax.tree.unflatten(
            treedef,
            [
                next(fresh) if owner == fragment else leaf
                for leaf, owner in zip(leaves, self.of, strict=True)
            ],
        )

    def paths_of(self, fragment: int) -> tuple[str, ...]:
        pairs = zip(self.paths, self.of, strict=True)
        return tuple(path for path, owner in pairs if owner == fragment)


def assign(tree: Any, choice: Choice) -> Fragments:
    """Cuts a tree into fragments: `choice` of them, or as a function of the path says.

    Raises:
        ValueError: more fragments than there are layers or leaves to fill them, or a
            function that leaves numbers out.
    """
    flat = jax.tree_util.tree_leaves_with_path(tree)
    paths = tuple(path_text(path) for path, _ in flat)
    if callable(choice):
        of = tuple(int(choice(path)) for path in paths)
    elif choice == 1:
        of = (0,) * len(flat)
    else:
        sizes = [leaf.size * leaf.dtype.itemsize for _, leaf in flat]
        of = _by_layer(paths, choice) or _by_bytes(sizes, choice)
    count = max(of, default=0) + 1
    if missing := sorted(set(range(count)) - set(of)) if of else []:
        raise ValueError(f"fragments: no leaf belongs to fragment {missing[0]}")
    if min(of, default=0) < 0:
        raise ValueError("fragments: the numbers must begin at 0")
    return Fragments(count, of, paths)


def _by_layer(paths: Sequence[str], count: int) -> tuple[int, ...] | None:
    """Layer l in fragment l mod count; what has no layer, if any, in fragment 0."""
    found = [re.search(r"\d+", path) for path in paths]
    layers = sorted({int(one.group()) for one in found if one})
    own = int(any(one is None for one in found))
    if len(layers) < max(2, count - own):
        return None
    rank = {layer: i for i, layer in enumerate(layers)}
    return tuple(
        own + rank[int(one.group())] % (count - own) if one else 0 for one in found
    )


def _by_bytes(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """Largest leaf first, to the fragment that has least."""
    if len(sizes) < count:
        raise ValueError(
            f"fragments={count}, but the parameters have only {len(sizes)} leaves"
        )
    held = [0] * count
    of = [0] * len(sizes)
    for leaf in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        of[leaf] = min(range(count), key=lambda i: (held[i], i))
        held[of[leaf]] += max(1, sizes[leaf])
    return tuple(of)
