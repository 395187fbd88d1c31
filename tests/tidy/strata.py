"""The layer table of docs/architecture.md as data: who may include or import whom."""

# Subfolders whose sources are programs of their own.
PROGRAMS = {"model", "program", "power_cut"}

# C++ folder -> folders it may include, besides itself.
CPP = {
    "base": set(),
    "codec": {"base"},
    "wire": {"base"},
    "protocol": {"base", "wire"},
    "collective": {"base", "codec"},
    "snapshot": {"base", "wire"},
    "proof": {"base"},
    "exchange": {"base", "codec", "wire", "collective", "snapshot"},
    "net": {"base", "exchange"},
    "page": {"base", "net"},
    "master": {"base", "wire", "protocol", "collective", "snapshot", "net", "page"},
    "peer": {
        "base",
        "codec",
        "wire",
        "protocol",
        "collective",
        "snapshot",
        "exchange",
        "net",
    },
    # codec and collective: its numbers are theirs, one by one, as JCCL_SAME holds.
    "capi": {"base", "codec", "collective", "peer", "master", "jccl"},
    "sim": {
        "base",
        "codec",
        "wire",
        "protocol",
        "collective",
        "snapshot",
        "exchange",
    },
    # A member that lies speaks the wire itself, and its rounds have a dtype and an op.
    "attack": {
        "base",
        "codec",
        "wire",
        "collective",
        "snapshot",
        "exchange",
        "net",
        "master",
        "peer",
    },
    "fuzz": {
        "base",
        "codec",
        "wire",
        "protocol",
        "collective",
        "snapshot",
        "exchange",
        "proof",
        "net",
        "master",
        "peer",
    },
}
# Tests of the topmost folder run whole clusters, against references from below.
TESTS_ALSO = {
    "capi": {
        "exchange",
        "net",
        "protocol",
        "snapshot",
        "wire",
    },
}
# codec: handlers encode on the host; collective: verbs, ops and aggregators by name.
XLA_EXT = {"base", "codec", "collective", "peer", "master", "proof", "xla"}
# Programs of the benchmarks: what a C++ user of the transport has, and the wire for one
# that plays the peers of a master.
BENCHMARKS = {"base", "codec", "collective", "net", "peer", "master", "wire"}

# No socket, clock, thread, mutex, file, log, random device, getenv.
PURE = {
    "base",
    "codec",
    "wire",
    "protocol",
    "collective",
    "snapshot",
    "proof",
    "exchange",
}
IMPURE_HEADERS = {
    "thread",
    "mutex",
    "condition_variable",
    "atomic",
    "chrono",
    "fstream",
    "iostream",
    "random",
    "filesystem",
    "future",
    "shared_mutex",
    "ctime",
    "sys/socket.h",
    "unistd.h",
    "time.h",
    "pthread.h",
    "fcntl.h",
}
IMPURE_CALLS = (
    "getenv(",
    "std::random_device",
    "fopen(",
    "clock_gettime(",
    "std::rand(",
)

# Which kernels run is found out once a process; all of them give the same bits. Which
# bug is planted the environment says, and the product has none.
IMPURE_BUT = {
    ("codec/kernels/isa.cc", "atomic"),
    ("base/planted.cc", "atomic"),
    ("base/planted.cc", "getenv("),
}

# Python module -> modules of the package it may import (left to right in the table).
PYTHON = [
    ["_groups", "errors"],
    ["_processes", "_slurm"],
    ["settings"],
    ["_native"],
    ["_build", "_exit", "_options", "callback"],
    ["_faults", "_leaving", "_members", "_progress", "codecs"],
    ["_watch"],
    ["aggregators", "encoding", "proofs"],
    ["planning"],
    ["_chain", "_geometry", "_host", "_results", "_trees"],
    ["_digest", "_local", "_marks", "_outer_step", "_round", "_where"],
    ["_host_calls", "_ops"],
    ["_mesh_call", "exported", "gradients"],
    ["_mesh"],
    ["_behind"],
    ["functions"],
    ["_peer_options", "communicator"],
    ["_verdicts", "connecting"],
    ["sites"],
    ["snapshot"],
    ["data"],
    ["optim"],
    ["audits", "checkpoint", "metrics", "ray", "testing"],
    ["cli"],
]
