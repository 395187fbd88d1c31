"""Writes the golden vectors of the codecs: numpy, independent of the C++ one.

Run by hand when a codec's bytes are meant to change; the files beside this one are
committed.
"""

import pathlib

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).parent


def make_input():
    rng = np.random.default_rng(20250514)
    parts = [
        rng.standard_normal(1000),
        rng.standard_t(3, 500) * 1e-3,
        np.zeros(256),
        rng.standard_normal(256) * 1e-38,
        rng.standard_normal(256) * 1e-42,
        rng.standard_normal(256) * 1e37,
        np.array(
            [3.4028235e38, -3.4028235e38, 65504, 65519, 65520, -1e9, -0.0, 1.4e-45]
        ),
        2.0 ** np.arange(-149, 128),
    ]
    return np.concatenate([p.astype(np.float32) for p in parts])


E4M3 = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
E3M0 = np.array([0, 1, 2, 4, 8, 16, 32, 64], np.float64)


def scale_of(part, top, lost, largest):
    """The largest magnitude over `top`, upward until the `lost` low bits are 0."""
    ideal = np.max(np.abs(part)) / np.float32(top)
    up = (int(ideal.view(np.uint32)) + lost) & ~lost
    return np.array(min(max(up, 0x00800000), largest), np.uint32).view(np.float32)


def codes_near(f, levels, ties_up):
    """Index of the nearest level to |f|; a tie goes to the even one, or up."""
    f = np.minimum(np.abs(f.astype(np.float64)), levels[-1])
    low = np.searchsorted(levels, f, side="right") - 1
    high = np.minimum(low + 1, len(levels) - 1)
    below, above = f - levels[low], levels[high] - f
    tie = high if ties_up else np.where(low % 2 == 0, low, high)
    return np.where(below < above, low, np.where(above < below, high, tie))


def chances(seed, first, count):
    """16 bits for each element: a hash of the seed and its index."""
    u64, u32 = np.uint64, np.uint32
    i = np.arange(first, first + count, dtype=u64)
    key = u64(seed) + i // u64(256) * u64(0x9E3779B97F4A7C15)
    key = (key ^ (key >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> u64(27))) * u64(0x94D049BB133111EB)
    key ^= key >> u64(31)
    within = (i % u64(256)).astype(u32)
    x = key.astype(u32) + within % u32(128) * u32(0x9E3779B9)
    x = (x ^ (x >> u32(16))) * u32(0x7FEB352D)
    x = ((x ^ (x >> u32(15))) + (key >> u64(32)).astype(u32)) * u32(0x846CA68B)
    x ^= x >> u32(16)
    return np.where(within < 128, x & u32(0xFFFF), x >> u32(16)).astype(np.int64)


def codes_noisy(f, levels, chance):
    """The level below |f|, or the one above: 14 bits of its position and of chance."""
    f = np.minimum(np.abs(f.astype(np.float64)), levels[-1])
    low = np.minimum(np.searchsorted(levels, f, side="right") - 1, len(levels) - 2)
    step = levels[low + 1] - levels[low]
    position = np.rint((f - levels[low]) / step * 16384).astype(np.int64)
    return low + (position + (chance >> 2) >= 16384) * 1


def encode_scaled(x, block, top, lost, largest, levels, sign, ties_up=False, seed=None):
    """`sign`: how a negative code is written, by its bit, or 0 for two's complement."""
    out = b""
    bits = (len(levels) - 1).bit_length() + 1
    for at in range(0, len(x), block):
        part = x[at : at + block]
        scale = scale_of(part, top, lost, largest)
        f = part * (np.float32(1) / scale)
        if seed is None:
            codes = codes_near(f, levels, ties_up)
        else:
            codes = codes_noisy(f, levels, chances(seed, at, len(part)))
        minus = np.signbit(f)
        codes = np.where(minus, codes | sign if sign else -codes, codes) & 0xFF
        codes = codes.astype(np.uint8)
        filled = (len(part) * bits + 7) // 8
        rows = np.zeros((8 // bits, filled), np.uint8)
        rows.reshape(-1)[: len(part)] = codes & ((1 << bits) - 1)
        shifts = bits * np.arange(8 // bits, dtype=np.uint8)[:, None]
        codes = np.bitwise_or.reduce(rows << shifts, axis=0)
        out += scale.tobytes()[4 - (4 if lost == 0xFF else 2) :] + codes.tobytes()
    return out


SCALED = {
    "int8": (256, 127, 0xFF, 0x7C010200, np.arange(128.0), 0),
    "fp8": (256, 448, 0xFFFF, 0x7B120000, E4M3, 0x80),
    "int4": (64, 7, 0xFFFF, 0x7E120000, np.arange(8.0), 0),
    "e3m0": (64, 64, 0xFFFF, 0x7C7F0000, E3M0, 8, True),
    "int2": (64, 1, 0xFFFF, 0x7F7F0000, np.arange(2.0), 0),
}


def encode_topk(x, kept, block=4096):
    out = b""
    for at in range(0, len(x), block):
        part = x[at : at + block]
        if 6 * kept >= 4 * len(part):
            out += part.tobytes()
            continue
        order = np.argsort(-np.abs(part.astype(np.float64)), kind="stable")
        index = np.sort(order[:kept]).astype(np.uint16)
        out += index.tobytes() + part[index].tobytes()
    return out


def lane_sum(terms):
    """In f64: lane i mod 16, and the lanes in halves."""
    lanes = np.zeros(16)
    for at in range(0, len(terms), 16):
        part = terms[at : at + 16]
        lanes[: len(part)] += part
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def mean_magnitude(magnitudes, chosen):
    """bf16 bits of the mean of the chosen: finite, and above 0 if it is."""
    if not chosen.any():
        return np.uint16(0)
    mean = lane_sum(np.where(chosen, magnitudes, 0.0)) / chosen.sum()
    bits = np.float32(mean).astype(ml_dtypes.bfloat16).view(np.uint16)
    return np.uint16(max(min(bits, 0x7F7F), 1 if mean > 0 else 0))


def encode_stat2(x):
    out = b""
    for at in range(0, len(x), 64):
        part = np.abs(x[at : at + 64])
        wide = part.astype(np.float64)
        least = np.float32(np.sqrt(lane_sum(wide * wide) / len(part)))
        large = part >= least
        pair = [mean_magnitude(wide, ~large), mean_magnitude(wide, large)]
        if pair[0] == pair[1]:
            pair, large = [np.uint16(0), pair[1]], part >= 0
        rows = np.zeros((4, (len(part) + 3) // 4), np.uint8)
        rows.reshape(-1)[: len(part)] = 2 * np.signbit(x[at : at + 64]) + large
        codes = np.bitwise_or.reduce(rows << np.uint8([[0], [2], [4], [6]]), axis=0)
        out += np.array(pair, np.uint16).tobytes() + codes.tobytes()
    return out


def encode_topk2(x, kept, block=4096):
    out = b""
    for at in range(0, len(x), block):
        part = x[at : at + block]
        order = np.argsort(-np.abs(part.astype(np.float64)), kind="stable")
        index = np.sort(order[:kept])
        bits = (index[:, None] >> np.arange(12) & 1).astype(np.uint8).reshape(-1)
        sparse = np.packbits(bits, bitorder="little").tobytes()
        sparse += encode_stat2(part[index])
        out += encode_stat2(part) if len(part) <= kept else sparse
    return out


def main():
    x = make_input()
    bf16_max = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    bf16 = np.clip(x, -bf16_max, bf16_max).astype(ml_dtypes.bfloat16)
    fp16 = np.clip(x, -65504, 65504).astype(np.float16)
    files = {
        "input_f32": x.tobytes(),
        "bf16": bf16.tobytes(),
        "fp16": fp16.tobytes(),
        "topk_100": encode_topk(x, 100),
        "stat2": encode_stat2(x),
        "topk2_100": encode_topk2(x, 100),
    }
    for name, parameters in SCALED.items():
        files[name] = encode_scaled(x, *parameters)
        files[f"{name}_seed_5"] = encode_scaled(x, *parameters, seed=5)
    for name, data in files.items():
        (HERE / f"codec_{name}.bin").write_bytes(data)


if __name__ == "__main__":
    main()
