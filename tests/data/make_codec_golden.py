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


def encode_int8(x, block=256):
    out = b""
    for at in range(0, len(x), block):
        part = x[at : at + block]
        ideal = np.max(np.abs(part)) / np.float32(127)
        up = (int(ideal.view(np.uint32)) + 0xFF) & ~0xFF
        bits = min(max(up, 0x00800000), 0x7C010200)
        scale = np.array(bits, np.uint32).view(np.float32)
        codes = np.rint(part * (np.float32(1) / scale)).astype(np.int8)
        out += scale.tobytes() + codes.tobytes()
    return out


def main():
    x = make_input()
    bf16_max = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    bf16 = np.clip(x, -bf16_max, bf16_max).astype(ml_dtypes.bfloat16)
    fp16 = np.clip(x, -65504, 65504).astype(np.float16)
    (HERE / "codec_input_f32.bin").write_bytes(x.tobytes())
    (HERE / "codec_bf16.bin").write_bytes(bf16.tobytes())
    (HERE / "codec_fp16.bin").write_bytes(fp16.tobytes())
    (HERE / "codec_int8.bin").write_bytes(encode_int8(x))


if __name__ == "__main__":
    main()
