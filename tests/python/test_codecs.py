"""Codec descriptions: names, objects and what they refuse; residuals in jit and out."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jccl
from jccl import _native, codecs

JCCL_H = Path(__file__).parents[2] / "cpp" / "include" / "jccl" / "jccl.h"
OBJECTS = (
    jccl.Bf16(),
    jccl.Fp16(),
    jccl.Int8(),
    jccl.Fp8(),
    jccl.Int4(),
    jccl.E3m0(),
    jccl.Int2(),
    jccl.Stat2(),
    jccl.TopK(kept=9),
    jccl.TopK2(kept=9),
)


def test_numbers_are_those_of_the_c_header():
    found = re.findall(r"JCCL_CODEC_(\w+)\s*=\s*(\d+)", JCCL_H.read_text())
    numbers = {name.lower(): int(number) for name, number in found}
    assert numbers == {c.name: c.number for c in codecs.CODECS.values()}


def test_each_class_repeats_its_row():
    rows = _native.core().codecs()
    assert [row["number"] for row in rows] == list(range(len(rows)))
    assert {row["name"] for row in rows} == {c.name for c in codecs.CODECS.values()}
    for codec in codecs.CODECS.values():
        row = rows[codec.number]
        assert codec.name == row["name"]
        assert (codec.relative, codec.of_largest) == (
            row["relative"],
            row["of_largest"],
        )
        assert getattr(codec, "block", 1) == row["block"]
        assert getattr(codec, "kept_max", 0) == row["kept_max"]
        if row["code_bits"]:
            scale = 8 * row["scale_bytes"] / row["block"]
            assert codec.bits == row["code_bits"] + scale


def test_a_name_an_object_and_none_all_resolve():
    assert codecs.resolve("int8") == jccl.Int8() == jccl.Int8(block=256)
    assert codecs.resolve(jccl.Bf16()).name == "bf16"
    assert codecs.resolve(None) == codecs.resolve("fp32") == jccl.Fp32()
    assert codecs.resolve("topk") == jccl.TopK(kept=64) == jccl.TopK(density=1 / 64)
    for codec in OBJECTS[:-2]:
        assert codecs.resolve(codec.name) == codec


def test_an_unknown_codec_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"int3.*bf16.*int8"):
        codecs.resolve("int3")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: jccl.Int8(block=128),
        lambda: jccl.Fp8(block=64),
        lambda: jccl.Int4(block=256),
        lambda: jccl.E3m0(block=1),
        lambda: jccl.TopK(kept=0),
        lambda: jccl.TopK(kept=4097),
        lambda: jccl.TopK2(kept=705),
        lambda: jccl.TopK(density=0.0),
        lambda: jccl.TopK(density=1.5),
        lambda: jccl.Int8(seed=3),
        lambda: jccl.Bf16(stochastic=True, seed=-1),
        lambda: jccl.Int4(stochastic=True, seed=2**64),
    ],
)
def test_parameters_the_transport_lacks_are_refused(wrong):
    with pytest.raises(ValueError, match=r"block=|kept=|density=|seed="):
        wrong()


def test_bits_count_codes_and_scales():
    bits = {c.name: c.bits for c in OBJECTS}
    assert bits["bf16"] == bits["fp16"] == 16
    assert 32 / bits["int8"] == pytest.approx(3.94, abs=0.01)
    assert 32 / bits["fp8"] == pytest.approx(3.97, abs=0.01)
    assert 32 / bits["int4"] == 32 / bits["e3m0"] == pytest.approx(7.53, abs=0.01)
    assert jccl.TopK(density=1).bits == 32, "never more than f32"
    assert bits["stat2"] == 2.5 and jccl.Stat2().result_bits(4) == jccl.Int4().bits
    assert 32 / jccl.TopK2().bits == pytest.approx(141.2, abs=0.1)
    assert jccl.TopK2(64).result_bits(2) == jccl.TopK(128).bits
    assert jccl.TopK2(64).result_bits(jnp.float32(100)) == 32


def values(count=5000, seed=0):
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


@pytest.mark.parametrize("codec", OBJECTS, ids=lambda c: c.name)
def test_a_residual_is_what_a_roundtrip_leaves_out(codec):
    x = values()
    sent, left = codec.roundtrip(x), codec.residual(x)
    assert isinstance(left, np.ndarray) and left.dtype == x.dtype
    assert (left == x - sent).all() and left.any()
    assert (codec.roundtrip(sent) == sent).all()


@pytest.mark.parametrize("codec", OBJECTS, ids=lambda c: c.name)
def test_in_jit_it_has_the_bits_it_has_outside(codec):
    for x in (values(), values(4097).astype(ml_dtypes.bfloat16), values(12)):
        x = x.reshape(-1, 2) if x.size % 2 == 0 else x
        both = jax.jit(lambda x: (codec.roundtrip(x), codec.residual(x)))(x)
        for inside, outside in zip(
            both, (codec.roundtrip(x), codec.residual(x)), strict=True
        ):
            assert inside.dtype == x.dtype and inside.shape == x.shape
            assert np.asarray(inside).tobytes() == outside.tobytes()


def test_every_lane_of_a_vmap_is_a_leaf_of_its_own():
    x = values(4 * 100).reshape(4, 100)
    lanes = jax.vmap(jccl.Int8().residual)(jnp.asarray(x))
    for lane, row in zip(np.asarray(lanes), x, strict=True):
        assert (lane == jccl.Int8().residual(row)).all()


def test_strided_and_scalar_arrays_and_lossless_codecs_are_taken():
    x = values(600)[::2]
    assert (jccl.Int8().residual(x) == jccl.Int8().residual(x.copy())).all()
    assert jccl.Int8().roundtrip(np.float32(3)).shape == ()
    assert not jccl.Fp32().residual(values()).any()
    assert (jccl.Fp32().roundtrip(np.arange(5)) == np.arange(5)).all()


def test_what_has_no_residual_is_refused():
    chance = jccl.Int8(stochastic=True, seed=3)
    for x in (values(), jnp.asarray(values())):
        with pytest.raises(ValueError, match="stochastic"):
            chance.residual(x)
    for x in (np.arange(4), jnp.arange(4)):
        with pytest.raises(TypeError, match="floats"):
            jccl.Int4().residual(x)


def test_with_feedback_nothing_is_lost():
    for codec in (jccl.Int4(), jccl.Stat2(), jccl.TopK(kept=100), jccl.TopK2(kept=100)):
        left = np.zeros(5000, np.float32)
        wanted, sent = np.zeros(5000), np.zeros(5000)
        for n in range(10):
            x = values(seed=n)
            wanted += x
            left += x
            sent += codec.roundtrip(left)
            left = codec.residual(left)
        np.testing.assert_allclose(sent + left, wanted, atol=1e-4)
