"""Codec descriptions: names, objects and what they refuse."""

import re
from pathlib import Path

import pytest

import jccl
from jccl import codecs

CODEC_H = Path(__file__).parents[2] / "cpp" / "codec" / "codec.h"


def test_numbers_are_those_of_the_c_header():
    numbers = dict(re.findall(r"k(None|Bf16|Fp16|Int8) = (\d+)", CODEC_H.read_text()))
    for codec in (jccl.Fp32(), jccl.Bf16(), jccl.Fp16(), jccl.Int8()):
        key = "None" if codec.name == "none" else codec.name.capitalize()
        assert int(numbers[key]) == codec.number


def test_a_name_an_object_and_none_all_resolve():
    assert codecs.resolve("int8") == jccl.Int8() == jccl.Int8(block=256)
    assert codecs.resolve(jccl.Bf16()).name == "bf16"
    assert codecs.resolve(None) == codecs.resolve("fp32") == jccl.Fp32()


def test_an_unknown_codec_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"int3.*bf16.*int8"):
        codecs.resolve("int3")


def test_a_block_size_the_transport_lacks_is_refused():
    with pytest.raises(ValueError, match="256"):
        jccl.Int8(block=128)


def test_int8_costs_a_scale_per_block():
    assert jccl.Fp32().bits / jccl.Int8().bits == pytest.approx(3.94, abs=0.01)
