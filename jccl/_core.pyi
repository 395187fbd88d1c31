"""The native module. Only `jccl._native` imports it.

Every blocking call releases the GIL, polls for Ctrl-C (which aborts the wait and raises
KeyboardInterrupt) and is bounded by its deadline. Durations are seconds; 0 means the
default. Arrays are C-contiguous numpy arrays (bfloat16 by ml_dtypes) and are used in
place, never copied on the way in. A bad argument raises ValueError or TypeError; an
expected fault of `connect`, `start` and `Master.start` raises CoreError(code, text); an
expected fault of a round is the `code` and `text` of its result.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

_Array = np.ndarray[Any, Any]

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier", "all_to_all"
]
Op = Literal["sum", "mean", "min", "max", "prod"]
Codec = str
"""A name, then parameters: "int8", "int4:stochastic:seed=7", "topk:kept=9"."""

version: Final[str]
build: Final[dict[str, str]]
"""As in master/build_facts.h."""
ffi_api_version: Final[tuple[int, int]]
"""(major, minor) of the XLA FFI headers this module was compiled with."""
codes: Final[dict[str, int]]
"""{"Ok": 0, "Empty": 1, ...} as in base/codes.h."""
remedies: Final[dict[int, str]]
"""Code number to "none", "retry", "reconnect", "resync", "fix" or "report"."""
limits: Final[dict[str, int]]
"""leaves_max, round_bytes_max, tag_bytes_max, peers_max."""
collectives: Final[dict[str, int]]
"""{"all_reduce": 1, ...} as in collective/spec.h."""
dtypes: Final[tuple[str, ...]]
"""Names of the numpy dtypes a leaf may have."""

class CoreError(Exception):
    """An expected fault; args are (code, text)."""

    code: int
    text: str

class RoundResult:
    @property
    def code(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def world(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def contributors(self) -> list[int]: ...
    @property
    def weights(self) -> list[float]: ...
    @property
    def sent_bytes(self) -> int: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def scatter_first(self) -> int: ...
    @property
    def scatter_count(self) -> int: ...
    @property
    def elapsed(self) -> float: ...

class SyncResult:
    @property
    def code(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def digest(self) -> str: ...
    @property
    def replaced(self) -> bool: ...
    @property
    def received_bytes(self) -> int: ...

class Attributes:
    @property
    def run_id(self) -> str: ...
    @property
    def id(self) -> int:
        """0 while an observer."""
    @property
    def incarnation(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def world(self) -> int: ...
    @property
    def sites(self) -> list[str]: ...
    @property
    def ids(self) -> list[int]:
        """Of each site's first shard."""
    @property
    def evictions(self) -> int:
        """Of this peer."""
    @property
    def evicted(self) -> str:
        """Why, the last time."""
    @property
    def sent_bytes(self) -> int: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def rounds_committed(self) -> int: ...
    @property
    def rounds_retried(self) -> int: ...
    @property
    def listen(self) -> str: ...

class Communicator:
    @staticmethod
    def connect(
        *,
        master: str,
        token: str = "",
        insecure: bool = False,
        group: str = "",
        site: str = "",
        shard: int = 0,
        shards: int = 1,
        bind: str = "",
        advertise: Sequence[str] = (),
        key_file: str = "",
        keys_of: Communicator | None = None,
        start_peers: int = 0,
        stripes: int = 0,
        max_rate: float = 0,
        day_bytes: float = 0,
        io_threads: bool | None = None,
        chunk_bytes: int = 262144,
        deadline: float = 300.0,
        connect_timeout: float = 30.0,
        master_grace: float = 60.0,
        record: str = "",
        record_mib: int = 2,
        record_on_signal: bool = False,
    ) -> Communicator: ...
    @property
    def registry_id(self) -> int:
        """Names it inside compiled programs; never reused in a process."""
    def run(
        self,
        inputs: Sequence[_Array],
        outputs: Sequence[_Array],
        *,
        tag: str = "default",
        collective: Collective = "all_reduce",
        op: Op = "mean",
        codec: Codec = "none",
        aggregator: str = "mean",
        quorum: str = "",
        weight: float = 1.0,
        root: bool = False,
        slots: int = 0,
        plan: str = "",
        guard: bool = True,
        fingerprint: str = "",
        deadline: float = 0.0,
        paths: Sequence[str] = (),
    ) -> RoundResult:
        """Blocks. `outputs[i]` may be `inputs[i]`; it is written only at commit."""
    def start(
        self,
        inputs: Sequence[_Array],
        outputs: Sequence[_Array] | None = None,
        *,
        tag: str = "default",
        collective: Collective = "all_reduce",
        op: Op = "mean",
        codec: Codec = "none",
        aggregator: str = "mean",
        quorum: str = "",
        weight: float = 1.0,
        root: bool = False,
        slots: int = 0,
        plan: str = "",
        guard: bool = True,
        fingerprint: str = "",
        deadline: float = 0.0,
        paths: Sequence[str] = (),
    ) -> int:
        """Begins a round; returns a handle. Without `outputs` the inputs are staged
        (copied) and `wait` says where results go; with them the arrays are held until
        `wait`."""
    def wait(
        self, handle: int, outputs: Sequence[_Array] | None = None
    ) -> RoundResult: ...
    def finished(self, handle: int) -> bool: ...
    def is_open(self, handle: int) -> bool: ...
    def sync_state(
        self,
        inputs: Sequence[_Array],
        outputs: Sequence[_Array],
        *,
        tag: str = "default",
        source: bool = False,
        restore: bool = False,
        deadline: float = 0.0,
        paths: Sequence[str] = (),
    ) -> SyncResult: ...
    def publish(
        self,
        inputs: Sequence[_Array],
        outputs: Sequence[_Array],
        *,
        tag: str = "default",
        deadline: float = 0.0,
        paths: Sequence[str] = (),
    ) -> SyncResult: ...
    def attributes(self) -> Attributes: ...
    def digest(self, tag: str = "default") -> str:
        """Of the newest published revision: 32 hex digits."""
    def revision(self, tag: str = "default") -> int: ...
    def last_fault(self, tag: str = "default") -> str:
        """Words for the last in-jit status of this tag that was not Ok; "" if none."""
    def site_of(self, id: int) -> str:
        """Of a member, also if it has left; "" for an unknown id."""
    def tell_found(
        self,
        *,
        tag: str,
        round: int,
        peer: int,
        differs: bool,
        worst: float,
        policy: int,
    ) -> None:
        """To the master: what was found when another peer's work was repeated."""
    def waiting_for(self) -> str: ...
    def timeline(self) -> list[dict[str, Any]]:
        """Times of the last rounds; see jccl.Communicator.timeline."""
    def abort(self) -> None:
        """Ends every open round; callable from any thread."""
    def record(self, why: str) -> str:
        """Leaves a recording in the folder for them; its path. Raises CoreError."""
    def close(self) -> None:
        """Leaves the run; idempotent."""
    @property
    def closed(self) -> bool: ...

class Master:
    @staticmethod
    def start(
        *,
        bind: str = "127.0.0.1:0",
        store: str = "memory:",
        token: str = "",
        insecure: bool = False,
        start_peers: int = 1,
        min_peers: int = 1,
        silence: float = 0.0,
        history: str = "",
        profile: str = "default",
        straggler: str = "wait",
        straggler_after: float = 10.0,
        restore_after: float = 30.0,
        admission: str = "auto",
        source: str = "",
        peer_networks: str = "",
        record: str = "",
        http: str = "",
        record_mib: int = 4,
        max_groups: int = 64,
        weight_max: float = 1e6,
        max_rate: float = 0,
        audit: float = 0.0,
        keep_waiting: Callable[[], bool] | None = None,
    ) -> Master:
        """With etcd it waits while another master is active, until `keep_waiting`,
        called several times a second, is false."""

    @property
    def address(self) -> str: ...
    @property
    def http_address(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    def status_json(self) -> str: ...
    def record(self, why: str) -> str:
        """Leaves a recording in the folder for them; its path. Raises CoreError."""

    def stop(self) -> None:
        """Idempotent."""

def query_status(
    master: str,
    *,
    token: str = "",
    insecure: bool = False,
    timeout: float = 5.0,
    group: str = "",
) -> str:
    """The status JSON of a master elsewhere. Raises CoreError."""

def give_order(
    master: str,
    *,
    verb: str,
    subject: str,
    span: float = 0.0,
    reason: str = "",
    token: str = "",
    insecure: bool = False,
    timeout: float = 5.0,
    group: str = "",
) -> str:
    """An operator's order; what was done, in words. Raises CoreError."""

def journal_summary(store: str, *, insecure: bool = False) -> str:
    """What a journal says, as JSON. Raises CoreError, as the next two."""

def copy_journal(source: str, target: str, *, insecure: bool = False) -> int:
    """All rows, into an empty store; how many."""

def export_journal(
    store: str, write: Callable[[str], object], *, insecure: bool = False
) -> None:
    """`write` gets each record as a line of JSON."""

def new_token() -> str: ...
def make_token(
    run_secret: str,
    *,
    role: str = "peer",
    uses: int = 0,
    expires_unix_s: int = 0,
    site: str = "",
) -> str: ...
def state_digest(arrays: Sequence[_Array]) -> str:
    """Of a state with these leaves, as `Communicator.digest` has it: 32 hex digits."""

def abort_all() -> None:
    """Aborts the waits of every open communicator of this process."""

def ensure_interrupts() -> None:
    """On the main thread: lets Ctrl-C abort waits of compiled programs."""

def cuda_problem() -> str:
    """Why no CUDA driver serves in this process; empty if one does."""

def handlers(platform: str = "cpu") -> dict[str, Any]:
    """FFI target name to capsule, for XLA's platform "cpu" or "CUDA"."""

def run_handler(
    target: str,
    operands: Sequence[_Array],
    results: Sequence[_Array],
    attributes: dict[str, Any],
    *,
    device: int = 0,
    execution: int = 0,
) -> None:
    """Calls an FFI handler over host arrays, as XLA would. `results` are written and
    may be operands. Attributes: str, np.int32, np.int64 or an int64 array."""

def codec_encode(
    array: _Array,
    codec: Codec,
    *,
    seed: int = 0,
    first_element: int = 0,
    reference: bool = False,
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of ALGORITHMS.md; `seed` is that of the noise. `reference` takes the
    plain form that defines them, for float32 alone."""

def codec_decode(
    encoded: _Array, codec: Codec, out: _Array, *, reference: bool = False
) -> None: ...
def codec_roundtrip(
    array: _Array, codec: Codec, out: _Array, *, residual: bool = False
) -> None:
    """out = decode(encode(array)), or what that leaves out. `out` may be `array`."""

def codecs() -> list[dict[str, Any]]:
    """The rows of `cpp/codec/spec.h`, by number."""

def proof_build(values: _Array, k: int, format: str) -> bytes:
    """Of one chunk: the 16 bits of its values, "bfloat16" or "float16"."""

def proof_of_points(indices: _Array, bits: _Array) -> bytes: ...
def proof_compare(
    proof: bytes, values: _Array, k: int, format: str
) -> tuple[int, int, float, float] | None:
    """(exponents, signs, mean, median); None of bytes that are no proof."""

def isas() -> list[str]:
    """Instruction sets that the kernels can use here, slowest first."""

def force_isa(isa: str) -> None:
    """For tests and benchmarks: all of them give the same bytes."""

def wish_exit_code(code: int) -> None:
    """With which the process ends, if it ends with 0 otherwise."""

def leave_with_handler(handler: Any) -> None:
    """On SIGTERM communicators leave at once as long as `handler` is the process's."""

def outer_step(
    anchor: _Array,
    momentum: _Array | None,
    delta: _Array,
    *,
    learning_rate: float,
    momentum_decay: float = 0.0,
    nesterov: bool = True,
) -> None:
    """The contraction-free outer step on f32 arrays, in place; the in-jit
    kernels' host form."""
