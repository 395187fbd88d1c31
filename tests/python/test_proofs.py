"""TOPLOC proofs: the authors' bytes, the same on every way, and what they find."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jccl
from jccl import proofs
from tests.data import make_proof_golden

DATA = pathlib.Path(make_proof_golden.__file__).parent


def golden(values_max=2**31):
    for line in (DATA / "proof_golden.txt").read_text().splitlines():
        seed, values, count, text = line.split()
        if int(values) < values_max:
            points = make_proof_golden.points(int(seed), int(values), int(count))
            yield int(values), points, bytes.fromhex(text)


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def ties(*shape, seed=0):
    """Few different magnitudes: the k-th largest is one of many."""
    values = np.random.default_rng(seed).integers(-3, 4, shape)
    return values.astype(np.float32)


def test_of_two_hundred_sets_of_points_the_bytes_are_those_of_the_authors():
    count = 0
    for _, (indices, bits), expected in golden():
        assert proofs.of_points(indices, bits) == expected
        count += 1
    assert count == 200


@pytest.mark.parametrize("program", [False, True])
def test_arrays_whose_largest_are_golden_points_have_their_bytes(program):
    prove = jax.jit(proofs.build) if program else proofs.build
    count = 0
    for values, (indices, bits), expected in golden():
        if (values, len(indices)) != (32 * 4096, 128) or 0 in np.array(bits) & 0x7FFF:
            continue
        chunk = np.zeros(values, np.uint16)
        chunk[indices] = bits
        made = prove(chunk.view(jnp.bfloat16).reshape(32, 4096))
        assert bytes(np.asarray(made)[0]) == expected
        count += 1
    assert count >= 100


def test_base64_is_that_of_the_authors():
    assert proofs.to_base64([bytes.fromhex("ffd9832faff91fea")]) == ["/9mDL6/5H+o="]
    made = proofs.build(normal(64, 64))
    assert proofs.from_base64(proofs.to_base64(made)) == [bytes(p) for p in made]
    assert proofs.from_base64(["no base64!"]) == [b""]
    assert proofs.from_base64("/9mDL6/5H+o=") == [bytes.fromhex("ffd9832faff91fea")]


@pytest.mark.parametrize("values", [ties(70, 96), normal(70, 96)])
def test_eager_jit_vmap_and_scan_give_the_same_bytes(values):
    expected = proofs.build(values, prefill=7)
    assert expected.shape == (3, 258) and expected.dtype == np.uint8
    jitted = jax.jit(functools.partial(proofs.build, prefill=7))
    np.testing.assert_array_equal(jitted(values), expected)
    several = np.stack([values, values[::-1], -values])
    mapped = jax.jit(jax.vmap(functools.partial(proofs.build, prefill=7)))(several)
    for made, one in zip(mapped, several, strict=True):
        np.testing.assert_array_equal(made, proofs.build(one, prefill=7))
    chunks = several[:, :64].reshape(6, 32, 96)
    _, scanned = jax.lax.scan(lambda c, x: (c, proofs.build(x)[0]), 0, chunks)
    for made, one in zip(scanned, chunks, strict=True):
        np.testing.assert_array_equal(made, proofs.build(one)[0])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, np.float32])
def test_each_dtype_gives_one_proof_on_all_ways(dtype):
    values = normal(32, 64).astype(dtype)
    expected = proofs.build(values)
    np.testing.assert_array_equal(jax.jit(proofs.build)(values), expected)
    assert proofs.compare(expected, values).exponents == 0


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_any_number_of_devices_gives_the_same_bytes(devices):
    values = ties(64, 48, seed=3)
    expected = proofs.build(values)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("model",))
    cut = jax.device_put(values, NamedSharding(mesh, P(None, "model")))
    np.testing.assert_array_equal(jax.jit(proofs.build)(cut), expected)
    prove = jax.shard_map(
        functools.partial(proofs.build, axis_name="model"),
        mesh=mesh,
        in_specs=P(None, "model"),
        out_specs=P(),
        check_vma=False,
    )
    np.testing.assert_array_equal(jax.jit(prove)(cut), expected)


def test_a_chunk_whose_indices_collide_agrees_with_its_own_proof():
    """The authors' verifier looks up the raw index of a list, and refuses it."""
    chunk = np.zeros(32 * 4096, np.float32)
    chunk[np.arange(128) * 7] = np.arange(1, 129)
    chunk[700] = 0
    chunk[65497] = 500  # as index 0, mod 65497
    made = proofs.build(chunk.reshape(32, 4096))
    assert bytes(made[0, :2]) != b"\xff\xd9"
    np.testing.assert_array_equal(jax.jit(proofs.build)(chunk.reshape(32, 4096)), made)
    found = proofs.compare(made, chunk.reshape(32, 4096))
    assert found.valid.all() and found.exponents == 0 and found.mean == 0


def test_negated_values_are_found():
    values = normal(32, 256)
    found = proofs.compare(proofs.build(values), -values)
    assert (found.exponents, found.mean, found.signs) == (0, 0, 128)
    limits = proofs.calibrate([proofs.compare(proofs.build(values), values)])
    assert limits.judge(found).by == ("signs",)


@pytest.mark.parametrize(
    "made",
    [
        [bytes(258)],
        [b""],
        [b"\xff"],
        [bytes(10_000)],
        [b"\xff\xda" + bytes(256)],
        [b"\xff\xd9" + bytes(254) + b"\xff\xd9"],
        [b"\xff\xd9" + bytes(254)],
        [],
    ],
)
def test_bytes_that_are_no_proof_are_as_far_off_as_can_be(made):
    found = proofs.compare(made, normal(32, 256))
    assert not found.valid.any() and found.exponents == 128
    limits = proofs.Limits(128, 128, 2.0**65, 2.0**65)
    assert limits.judge(found).by == ("form",)


def test_a_proof_without_a_chunk_is_none_of_the_sample():
    values = normal(32, 256)
    made = [bytes(proofs.build(values)[0])] * 2
    assert list(proofs.compare(made, values).valid) == [True, False]


def test_what_is_not_finite_is_refused_or_proves_nothing():
    values = normal(32, 256)
    for bad in (np.nan, np.inf, -np.inf):
        values[3, 5] = bad
        with pytest.raises(jccl.GuardError, match="NaN or Inf"):
            proofs.build(values)
        assert not np.asarray(jax.jit(proofs.build)(values)).any()


@pytest.mark.parametrize("verb", ["build", "jit", "compare"])
def test_mistakes_are_refused_in_words(verb):
    values = normal(32, 256)
    for mistake, words in [
        ({"k": 0}, "k=0 is not between"),
        ({"k": 513}, "k=513 is not between"),
        ({"rows": 0}, "can't be cut"),
        ({"prefill": 33}, "can't be cut"),
        ({"rows": 31, "k": 300}, "rows 31 to 32 hold 256 values"),
    ]:
        call = {
            "build": functools.partial(proofs.build, **mistake),
            "jit": jax.jit(functools.partial(proofs.build, **mistake)),
            "compare": functools.partial(proofs.compare, [], **mistake),
        }[verb]
        with pytest.raises(ValueError, match=words):
            call(values)
    with pytest.raises(TypeError, match="of floats"):
        proofs.build(np.arange(4096).reshape(32, 128))
    with pytest.raises(ValueError, match="no rows to prove"):
        proofs.build(values[:0])


def test_the_smallest_numbers_count_on_all_ways():
    """Below 2^-126 processors may take numbers for 0; proofs never do."""
    values = normal(32, 64).astype(np.float32) * np.float32(2.0**-130)
    values[0, :5] = [1e-41, -2e-42, 1e-45, 0, -0.0]
    np.testing.assert_array_equal(jax.jit(proofs.build)(values), proofs.build(values))


def test_limits_follow_the_honest_and_reject_the_others():
    values = normal(320, 256, seed=1)
    near = values * (1 + 2e-3 * normal(320, 256, seed=2))
    far = values * (1 + 5e-2 * normal(320, 256, seed=3))
    honest = [
        proofs.compare(proofs.build(values[i : i + 32]), near[i : i + 32])
        for i in range(0, 320, 32)
    ]
    assert any(sample.exponents.any() or sample.mean.any() for sample in honest)
    limits = proofs.calibrate(honest, margin=1.25)
    assert limits.samples == 10
    assert all(limits.judge(sample).accepted for sample in honest)
    verdict = limits.judge(proofs.compare(proofs.build(values), far))
    assert not verdict.accepted and "mean" in verdict.by
    assert verdict.statistics["mean"] > limits.mean


def test_the_mean_of_a_sample_counts_and_no_single_chunk():
    limits = proofs.Limits(2.0, 0.0, 1.0, 1.0)
    one = np.array([0, 0, 0, 7], np.int32)
    none = np.zeros(4)
    valid = np.ones(4, bool)
    assert limits.judge(proofs.Comparison(one, none, none, none, valid)).accepted
    assert not limits.judge(
        proofs.Comparison(one + 1, none, none, none, valid)
    ).accepted


def test_calibration_needs_honest_samples():
    good = proofs.compare(proofs.build(normal(32, 64)), normal(32, 64))
    bad = proofs.compare([b""], normal(32, 64))
    for samples, words in [([], "at least one"), ([good, bad], "not a proof")]:
        with pytest.raises(ValueError, match=words):
            proofs.calibrate(samples)
    with pytest.raises(ValueError, match="margin"):
        proofs.calibrate([good], margin=0.5)
    assert proofs.calibrate([good]).exponents == 0.5


def test_it_is_a_part_of_the_package():
    assert jccl.proofs is proofs
