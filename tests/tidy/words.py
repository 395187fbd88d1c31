"""The words that public names are built of, beside the terms of docs/glossary.md, and
the names that were given up. A word joins a list here when a public name needs it and
the field has it already; a word in a sense of our own joins the glossary."""

# A plural with -s or -es counts as its word.
COMMON = {
    "grammar": """
        after again all any back before between every few first for from in last like
        new no none of on once out per to too until with
    """,
    "computing": """
        abort aborted address array attribute audit auth base begin bench bind build
        busy byte check checkpoint cli close closed code comm communicator compare
        comparison connect copy corrupt count create damaged data day deadline default
        deserialize dimension doctor drain dtype dump elapsed empty encode encoded end
        environment error expire explain export exported factor file fingerprint form
        free grace history http id incomplete init insecure int internal invalid io
        iteration json keep kept key kill known launch leaving limit list listen local
        log lost make max memory meter metric mib min mismatch mtbf name network norm ns
        number observe offline ok op option params path place plot pool private process
        prune publish published quiet quorum reaction read reason received record
        replaced reserved restart restore result rate resynced retried revoke role room
        root rtt sample second security seed sent shape sharded share shared shuffled
        signal size skew skipped slot source spec start started state status stop store
        struct target test testing thread time timeout tls trace transport travel
        unknown use value verify version wait waiting warmup watch weight went wrong
    """,
    "membership": """
        admit advertise ban banned cluster committed disputed edited evict evicted group
        kick pardon profile
    """,
    "collectives": """
        barrier broadcast centered clip collective gather mean median prod reduce
        reduced residual roundtrip scatter stat stochastic sum sync top topk trimmed
        unshard
    """,
    "training": """
        diagnose diloco done eager feed gradient layer loco loss nesterov outer paced
        pacer sgd sparse step turn
    """,
    "proofs": "auditor calibrate claim drawn judged point proof replay verdict",
    "versions": "fact major minor patch",
    "libraries": "etcd jccl ray",
    # Of formats (f32, bf16, e3m0, top-k), and n, the number of things.
    "formats": "bf e f fp h i k m n u",
    "short options": "b w",
}

# Names that were given up, as patterns: what they became, and where they must not come
# back (folders, suffixes of files).
CPP = (("cpp", "xla_ext", "benchmarks"), (".h", ".cc", ".c", ".cmake", ".txt"))
PROTOCOL = (("cpp/protocol",), (".h", ".cc"))
PYTHON = (("jccl", "tests", "benchmarks", "examples", "docs"), (".py", ".pyi", ".md"))
EXTENSION = (("xla_ext",), (".h", ".cc"))
GIVEN_UP = {
    r"\bAttemptRun\b|\bRunningAttempt\b": ("MasterAttempt", *CPP),
    r"\bwire/codec\.h\b": ("wire/serialize.h", *CPP),
    r"\bclass Plane\b|\bpeer/plane\.h\b": ("DataPlane", *CPP),
    r"\bdoor_open\b": ("admission_open", *CPP),
    r"\bArrivalNotes?\b": ("Acks", *CPP),
    r"\bclass Feed\b|\bpeer::Feed\b": ("StreamedInput", *CPP),
    r"\benum class Link\b": ("MasterConnection", *PROTOCOL),
    r"\bJCCL_TRIES\b": ("JCCL_TEST_CODE", *CPP),
    r"\bsites\.Parts\b|^class Parts\b": ("ShardedCommunicator", *PYTHON),
    r"\bjccl\.(?:ops|mesh)\b": ("the verbs of jccl", *PYTHON),
    r"\bstruct Life\b|\blives_\b": ("ProcessRecord", *PROTOCOL),
    r"\bJoin(?:Outcome|Table)?\b": ("DeviceRendezvous", *EXTENSION),
}
