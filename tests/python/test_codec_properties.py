"""The promises of ALGORITHMS.md about codecs, for arrays that hypothesis makes up:
error bounds, idempotence, sizes, the same bytes on every instruction set, and what a
round sends."""

import re
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jccl
from jccl import _native
from jccl.testing import Cluster

ALGORITHMS = Path(__file__).parents[2] / "cpp" / "collective" / "ALGORITHMS.md"
SCALED = {
    "int8": (256, 127),
    "fp8": (256, 448),
    "int4": (64, 7),
    "e3m0": (64, 64),
    "int2": (64, 1),
}
ROUNDING = ("bf16", "fp16", *SCALED)
SPARSE = ("topk:kept=1", "topk:kept=70", "topk2:kept=1", "topk2:kept=67")
NEAREST = (*ROUNDING, "stat2", *SPARSE)
CHANCE = tuple(f"{name}:stochastic:seed=3" for name in ROUNDING)
FLOATS = ("float32", "float64", "bfloat16", "float16")
SIZES = (0, 1, 2, 63, 64, 65, 255, 256, 257, 300, 1000, 4095, 4096, 4097, 5001)

core = _native.core()
quickly = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def arrays(draw):
    """Runs of like magnitude over the whole range of f32, with zeros, denormals and
    the largest values among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from(SIZES))
    exponents = draw(st.lists(st.integers(-149, 126), min_size=1, max_size=6))
    scale = 2.0 ** rng.choice(exponents, size // 64 + 1).repeat(64)[:size]
    with np.errstate(over="ignore"):
        x = (rng.standard_normal(size) * scale).astype(np.float32)
    x = np.clip(x, -np.finfo(np.float32).max, np.finfo(np.float32).max)
    odd = draw(st.sampled_from([0, 0.01, 0.5, 1]))
    special = np.float32(
        [0, -0.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 65504]
    )
    return np.where(rng.random(size) < odd, rng.choice(special, size), x)


def encode(x, codec, **options):
    return core.codec_encode(x, codec, **options)


def decode(encoded, codec, like, **options):
    out = np.empty_like(like)
    core.codec_decode(encoded, codec, out, **options)
    return out


def block_of(codec):
    name = codec.split(":")[0]
    others = {"bf16": 1, "fp16": 1, "stat2": 64, "topk": 4096, "topk2": 4096}
    return others.get(name) or SCALED[name][0]


def absmax_of_blocks(x, block):
    """The largest magnitude of each element's block."""
    v = np.abs(x.astype(np.float64))
    starts = np.arange(0, len(v), block)
    most = np.maximum.reduceat(v, starts) if len(v) else v
    return np.repeat(most, block)[: len(v)]


def bound(codec, x):
    """The table "Error bounds of one encoding"."""
    name, chance = codec.split(":")[0], "stochastic" in codec
    v, halves = np.abs(x.astype(np.float64)), 2.0 if chance else 1.0
    if name == "bf16":
        return halves * (v * 2**-8 + 2.0**-134)
    if name == "fp16":
        return np.where(v > 65504, v - 65504, halves * (v * 2**-11 + 2**-25))
    if name == "topk":
        return v
    a = absmax_of_blocks(x, block_of(codec))
    if name in ("stat2", "topk2"):
        return np.maximum(a * (1 + 2**-8), 2.0**-133)
    if name == "int8":
        return halves * np.maximum(a / 254 * (1 + 2**-14), 2.0**-127)
    wider = 1 + 2**-6
    if name == "fp8":
        small = np.maximum(a / 448 * 2**-10 * wider, 2.0**-136)
        return halves * np.maximum(v * 2**-4 * (1 + 2**-14), small)
    if name in ("int4", "int2"):
        steps = 2 * SCALED[name][1]
        return halves * np.maximum(a / steps * wider, 2.0**-127)
    step = np.maximum(halves * a / 128 * wider, halves * 2.0**-127)
    return np.maximum(v if chance else v / 3 * (1 + 2**-14), step)


@quickly
@given(arrays(), st.sampled_from(NEAREST + CHANCE), st.integers(0, 2**64 - 1))
def test_errors_stay_within_the_documented_bounds(x, codec, seed):
    out = decode(encode(x, codec, seed=seed), codec, x)
    assert np.isfinite(out).all()
    assert (np.abs(x.astype(np.float64) - out) <= bound(codec, x)).all()


# Of normal values (ALGORITHMS.md): nothing but the codec comes close to these, neither
# zeros (1), nor the values with other signs (2), nor with another scale.
RELATIVE = {
    "bf16": 0.0017,
    "fp16": 0.0002,
    "int8": 0.0070,
    "fp8": 0.026,
    "int4": 0.109,
    "e3m0": 0.188,
    "int2": 0.718,
    "stat2": 0.334,
}


@pytest.mark.parametrize("codec", RELATIVE)
def test_the_error_of_normal_values_is_the_documented_one(codec):
    x = np.random.default_rng(5).standard_normal(1 << 18).astype(np.float32)
    left = decode(encode(x, codec), codec, x) - x.astype(np.float64)
    found = np.linalg.norm(left) / np.linalg.norm(x)
    assert found == pytest.approx(RELATIVE[codec], rel=0.03, abs=0.00005)
    assert f"{RELATIVE[codec]} ({codec})" in ALGORITHMS.read_text().replace(
        "0.0070", "0.007"
    )


@quickly
@given(arrays(), st.sampled_from(("stat2", "topk2:kept=1", "topk2:kept=67")))
def test_two_bits_keep_signs_and_the_sum_of_magnitudes(x, codec):
    """The documented bound allows zeros; this does not."""
    x = np.clip(x, -1e30, 1e30)
    out = decode(encode(x, codec), codec, x).astype(np.float64)
    block = block_of(codec)
    for at in range(0, len(x), block):
        part, got = x[at : at + block].astype(np.float64), out[at : at + block]
        sent = part
        if codec != "stat2" and len(part) > (kept := int(codec.split("=")[1])):
            order = np.argsort(-np.abs(part), kind="stable")[kept:]
            assert not got[order].any(), "beyond the largest"
            sent = part.copy()
            sent[order] = 0
        assert (got * sent >= 0).all(), "signs"
        assert np.abs(got).sum() == pytest.approx(
            np.abs(sent).sum(), rel=2**-7, abs=1e-35
        )


@quickly
@given(arrays(), st.sampled_from(("topk:kept=1", "topk:kept=70")))
def test_the_largest_are_sent_as_they_are_and_nothing_else(x, codec):
    out, kept = decode(encode(x, codec), codec, x), int(codec.split("=")[1])
    for at in range(0, len(x), 4096):
        part, got = x[at : at + 4096], out[at : at + 4096]
        sent = part.copy()
        if 6 * kept < 4 * len(part):
            sent[np.argsort(-np.abs(part), kind="stable")[kept:]] = 0
        assert (got == sent).all()


@quickly
@given(arrays(), st.sampled_from(NEAREST + CHANCE), st.integers(0, 2**40))
def test_every_instruction_set_gives_the_bytes_of_the_reference(x, codec, first):
    expected = encode(x, codec, seed=9, first_element=first, reference=True)
    values = decode(expected, codec, x, reference=True)
    try:
        for isa in core.isas():
            core.force_isa(isa)
            got = encode(x, codec, seed=9, first_element=first)
            assert (got == expected).all()
            back = decode(got, codec, x)
            assert (back.view(np.uint32) == values.view(np.uint32)).all()
    finally:
        core.force_isa(core.isas()[-1])


@quickly
@given(arrays(), st.sampled_from(NEAREST))
def test_encoding_decoded_values_gives_the_same_bytes(x, codec):
    once = encode(x, codec)
    assert (encode(decode(once, codec, x), codec) == once).all()


@quickly
@given(arrays(), st.sampled_from(NEAREST + CHANCE), st.data())
def test_a_whole_is_the_concatenation_of_its_parts(x, codec, data):
    block = max(16, block_of(codec))
    cuts = data.draw(st.sets(st.integers(0, len(x) // block)))
    ends = sorted({0, len(x), *(block * c for c in cuts)})
    parts = [
        encode(x[a:b], codec, seed=4, first_element=a)
        for a, b in zip(ends, ends[1:], strict=False)
    ]
    whole = encode(x, codec, seed=4)
    assert (np.concatenate([np.empty(0, np.uint8), *parts]) == whole).all()


@quickly
@given(arrays(), st.sampled_from(NEAREST), st.sampled_from(FLOATS))
def test_every_float_leaf_travels_as_its_f32_values(x, codec, dtype):
    leaf = np.clip(x, -65504, 65504).astype(ml_dtypes.bfloat16).astype(dtype)
    out = decode(encode(leaf, codec), codec, leaf)
    same = decode(
        encode(leaf.astype(np.float32), codec), codec, leaf.astype(np.float32)
    )
    with np.errstate(over="ignore"):
        assert (out == same.astype(dtype)).all()


@quickly
@given(arrays(), st.sampled_from(NEAREST), st.integers(0, 5000), st.booleans())
def test_nan_and_infinity_touch_nothing_outside_their_block(x, codec, at, infinite):
    if not len(x):
        return
    block = block_of(codec)
    broken = x.copy()
    broken[at % len(x)] = np.inf if infinite else np.nan
    out = decode(encode(broken, codec), codec, x)
    clean = decode(encode(x, codec), codec, x)
    away = np.arange(len(x)) // block != at % len(x) // block
    assert (out[away] == clean[away]).all()


def documented_sizes():
    """Rows of the table of sizes: name -> (B, formula of m and kept)."""
    table = ALGORITHMS.read_text().split("<!-- sizes:")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (.*?) \| ([\d.]+)", table, re.M)
    python = str.maketrans({"·": "*", "⌈": "-(-(", "⌉": ")//1)", "≤": "<="})
    return {
        name: (
            int(b),
            re.sub(r"(m|kept)/(\d+)", r"Fraction(\1, \2)", formula.translate(python)),
            ratio,
        )
        for name, b, formula, ratio in rows
    }


def documented_bytes(codec, count):
    block, formula, _ = documented_sizes()[codec.split(":")[0]]
    kept = int(codec.split("kept=")[1]) if "kept=" in codec else 64
    sizes = [block] * (count // block) + [count % block] * (count % block > 0)
    names = {"Fraction": Fraction, "min": min, "kept": kept}
    return sum(int(eval(formula, {**names, "m": m})) for m in sizes)


def test_the_document_has_the_size_of_every_codec():
    sizes = documented_sizes()
    assert set(sizes) == set(jccl.codecs.CODECS) - {"none", "fp32"}
    for name, (_, _, ratio) in sizes.items():
        count = 4096 * 16
        assert 4 * count / documented_bytes(name, count) == pytest.approx(
            float(ratio), abs=0.05
        )
        assert jccl.codecs.CODECS[name].bits == pytest.approx(
            8 * documented_bytes(name, count) / count
        )


@quickly
@given(arrays(), st.sampled_from(NEAREST + CHANCE))
def test_sizes_are_those_of_the_document(x, codec):
    assert encode(x, codec).size == documented_bytes(codec, len(x))


@pytest.mark.parametrize("plan", ["direct", "exchange"])
@pytest.mark.parametrize("world", [2, 3])
def test_a_round_sends_the_documented_bytes(world, plan):
    """§5: direct (n−1)·E + (n−1)·R in all, exchange n·(n−1)·E."""
    count = 40_000
    objects = [jccl.Bf16(), jccl.Int8(), jccl.Fp8(), jccl.Int4(), jccl.E3m0()]
    objects += [jccl.Int2(), jccl.Int8(stochastic=True, seed=1)]
    objects += [jccl.TopK(9), jccl.TopK(1500), jccl.Stat2(), jccl.TopK2(9)]

    def program(comm, index):
        x = np.random.default_rng(index).standard_normal(count).astype(np.float32)
        return [
            [
                comm.all_reduce(
                    x, codec=c, tag=f"{i}.{turn}", round=jccl.Round(plan=plan)
                ).sent_bytes
                for i, c in enumerate(objects)
            ]
            for turn in range(3)
        ]

    # No connection breaks here, so nothing is sent twice, not even in the first round.
    with Cluster(world) as cluster:
        sent = np.sum(cluster.run(program), axis=0).T
    for codec, totals in zip(objects, sent, strict=True):
        one = documented_bytes(codec.spec, count)
        result = one
        if isinstance(codec, jccl.TopK):
            kept = min(world * codec.kept, 4096)
            result = documented_bytes(f"topk:kept={kept}", count)
        if isinstance(codec, jccl.Stat2):
            result = documented_bytes("int4", count)
        others = world - 1
        expected = (
            world * others * one if plan == "exchange" else others * (one + result)
        )
        assert totals.tolist() == [expected] * 3, codec.spec
