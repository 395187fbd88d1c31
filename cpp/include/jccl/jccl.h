/* jccl: fault-tolerant collectives with dynamic membership. The one public header, C99.
 *
 * A master orders the run's membership. Peers connect to it and move data among themselves. Every
 * function returns a code; jccl_last_error() of the same thread says in words what happened.
 * Objects are opaque and thread-safe unless said otherwise. The library borrows a caller's text
 * during the call. A failed round leaves its inputs as they were.
 *
 * Structs begin with struct_size, set by their _INIT macro, so that fields can be added later.
 */
#ifndef JCCL_JCCL_H_
#define JCCL_JCCL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define JCCL_EXPORT __attribute__((visibility("default")))
#else
#define JCCL_EXPORT
#endif

#define JCCL_VERSION_MAJOR 0
#define JCCL_VERSION_MINOR 1
#define JCCL_VERSION_PATCH 0

/* ---- codes ---- */

/* Each has one remedy, see jccl_code_remedy(). Numbers are never reused. */
enum jccl_code {
  JCCL_OK = 0,           /* committed */
  JCCL_EMPTY = 1,        /* sum of weights is 0: nobody contributed */
  JCCL_TOO_FEW = 2,      /* fewer than min_peers sites within the deadline */
  JCCL_DEADLINE = 3,     /* deadline passed; surely not committed here */
  JCCL_IN_DOUBT = 4,     /* deadline passed; the outcome is not known yet */
  JCCL_MISMATCH = 5,     /* peers disagree in shape, dtype, codec or op */
  JCCL_GUARD = 6,        /* own contribution left out: NaN or Inf */
  JCCL_CORRUPT = 7,      /* result digests differ twice, or the input changed in the call */
  JCCL_EVICTED = 8,      /* the run went on without this peer */
  JCCL_RESYNC = 9,       /* own state is behind or different */
  JCCL_RESYNCED = 10,    /* state was replaced by the newest snapshot */
  JCCL_MASTER_LOST = 11, /* master unreachable beyond the grace period */
  JCCL_VERSION = 12,     /* protocol versions differ */
  JCCL_WRONG_RUN = 13,   /* master or journal belongs to another run */
  JCCL_AUTH = 14,        /* token missing, wrong, or required */
  JCCL_CLOSED = 15,      /* communicator closed or process forked */
  JCCL_ABORTED = 16,     /* the user interrupted the wait */
  JCCL_INVALID = 17,     /* bad argument; nothing was sent */
  JCCL_UNKNOWN_TAG = 18, /* no call with this tag was started; not an open handle */
  JCCL_BUSY_TAG = 19,    /* a call with this tag is already running */
  JCCL_LIMIT = 20,       /* more leaves, bytes or peers than the limits */
  JCCL_LOCAL_SKEW = 21,  /* local devices did not arrive together */
  JCCL_STATE_LOST = 22,  /* every holder of the newest revision is gone */
  JCCL_IO = 23,          /* port in use, disk full, unresolvable name */
  JCCL_DAMAGED = 24,     /* the journal is damaged; the record is named */
  JCCL_PEER_LOST = 25,   /* a peer died, hung or was cut off */
  JCCL_LINK_LOST = 26,   /* a link between two peers broke */
  JCCL_INTERNAL = 27,    /* a bug of ours */
  JCCL_SKIPPED = 28,     /* own contribution left out: too slow; the result is there */
  JCCL_DISPUTED = 29,    /* no majority says what the newest revision is; an operator decides */
  JCCL_BANNED = 30,      /* the run refuses this key or token */
  JCCL_CODE_COUNT = 31
};

/* "Ok", "Deadline", …; "Unknown" for other numbers. Static text. */
JCCL_EXPORT const char* jccl_code_name(int32_t code);
/* "none", "retry", "reconnect", "resync", "fix" or "report". Static text. */
JCCL_EXPORT const char* jccl_code_remedy(int32_t code);
/* The error of this thread's last failed call, and what to do; "" before the first failure. Valid
 * until the next failing call of this thread. */
JCCL_EXPORT const char* jccl_last_error(void);
/* "0.1.0" of the library, which may be newer than this header. Static text. */
JCCL_EXPORT const char* jccl_version(void);

/* Functions that answer a text copy it into `text` and end it with 0. `size` holds the room on
 * entry, and on return the length including the 0. If there is too little room, the code is LIMIT
 * and `size` says how much is needed. `text` may be NULL when the room is 0. */

/* ---- master ---- */

typedef struct jccl_master jccl_master;

typedef struct {
  uint32_t struct_size;       /* set by JCCL_MASTER_OPTIONS_INIT */
  uint32_t start_peers;       /* sites awaited once, before the first round; 0 = 1 */
  uint32_t min_peers;         /* sites every commit needs; 0 = 1 */
  int32_t insecure;           /* 1: plain connections off loopback without a token */
  int64_t silence_ns;         /* a peer silent for this long is evicted; 0: the profile's */
  int64_t restart_grace_ns;   /* for known peers to come back after a restart; 0 = 5 s */
  const char* bind;           /* "host:port"; NULL = "127.0.0.1:0", a free port */
  const char* store;          /* "sqlite:PATH", "etcd://HOST:PORT,.../PREFIX"; NULL = "memory:" */
  const char* token;          /* the run's secret; NULL: plain, loopback only */
  const char* run;            /* 32 hex digits; NULL: the token's, the journal's, or a new one */
  const char* history;        /* JSON lines are appended to this file; NULL: none */
  const char* profile;        /* "lan": silence 0.6 s, "default": 3 s, "wan": 5 s; NULL = default */
  const char* straggler;      /* sites others wait for: "wait", "skip", "evict"; NULL = "wait" */
  int64_t straggler_after_ns; /* that long; 0 = 10 s */
  const char* admission;      /* "auto", "manual", "list:FILE"; NULL = "auto" */
  int64_t restore_after_ns;   /* if no peer has the newest state any more, the run goes back to the
                                 newest that a peer has, after this time; 0 = 30 s */
  const char* record;         /* recordings are left in this folder, after faults and when asked;
                                 NULL: none */
  int64_t record_bytes;       /* kept of the last events for them; 0 = 4 MiB; -1: none;
                                 128 MiB at most */
  double weight_max;          /* refuse a weight above this many times the median of its round;
                                 0 = 1e6, negative: refuse none */
  double audit;               /* share of each round's cells that the master adds up anew, 0 to 1 */
  const char* source;         /* the site with whose state the run begins; NULL: peers name one */
  double max_rate;            /* bytes per second that each peer may send to all others together, at
                                 least 10000; 0: no bound */
} jccl_master_options;

#define JCCL_MASTER_OPTIONS_INIT \
  {sizeof(jccl_master_options),  \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   NULL,                         \
   NULL,                         \
   NULL,                         \
   NULL,                         \
   NULL,                         \
   NULL,                         \
   NULL,                         \
   0,                            \
   NULL,                         \
   0,                            \
   NULL,                         \
   0,                            \
   0,                            \
   0,                            \
   NULL,                         \
   0}

/* Starts a master in this process, on a thread of its own. options may be NULL. With etcd it
 * returns when no other master of the run is active, however long that takes. Codes: OK, INVALID,
 * AUTH, IO (port or store in use), WRONG_RUN, DAMAGED (fix or report). */
JCCL_EXPORT int32_t jccl_master_start(const jccl_master_options* options, jccl_master** master);
/* Stops it, frees its port at once and the object. NULL is allowed. */
JCCL_EXPORT void jccl_master_stop(jccl_master* master);
/* Valid as long as the master. NULL master: "". */
JCCL_EXPORT const char* jccl_master_address(const jccl_master* master);
JCCL_EXPORT const char* jccl_master_run(const jccl_master* master);
/* The status of the run, as one JSON object. Codes: OK, LIMIT, INVALID. */
JCCL_EXPORT int32_t jccl_master_status(const jccl_master* master, char* text, size_t* size);
/* Evicts a site, as an operator's order does. Codes: OK, INVALID. */
JCCL_EXPORT int32_t jccl_master_evict(jccl_master* master, const char* site);
/* Leaves a recording of the master, for jccl-sim --replay, in the folder for them; `text` is its
 * path. why may be NULL. Codes: OK, INVALID (no folder, nothing is kept), LIMIT (too many, too
 * soon), IO, CLOSED. */
JCCL_EXPORT int32_t jccl_master_record(jccl_master* master, const char* why, char* text,
                                       size_t* size);
/* Makes the secret of a new run. Masters need it to start, and tokens are made from it. Peers may
 * use it, too; give machines that are not yours a token. Codes: OK, LIMIT, INVALID, IO. */
JCCL_EXPORT int32_t jccl_new_token(char* text, size_t* size);
/* A token made of a run's secret, for a "peer" (NULL), an "observer" or an "admin", until a time
 * (0: for good), for one site (NULL: any), for so many keys of one shard (0: any number). Codes:
 * OK, AUTH (not the run's secret), LIMIT, INVALID, IO. */
JCCL_EXPORT int32_t jccl_make_token(const char* run_secret, const char* role,
                                    int64_t expires_unix_s, const char* site, uint32_t uses,
                                    char* text, size_t* size);

/* ---- joining and leaving ---- */

typedef struct jccl_comm jccl_comm;

typedef struct {
  uint32_t struct_size;       /* set by JCCL_OPTIONS_INIT */
  uint32_t shard;             /* this peer's index in its site */
  uint32_t shards;            /* of the site; 0 = 1 */
  uint32_t start_peers;       /* sites awaited before the first round; 0: no request */
  uint32_t stripes;           /* connections per link, 1..64; 0: automatic */
  int32_t insecure;           /* 1: plain connections off loopback without a token */
  uint64_t chunk_bytes;       /* what travels as one frame; 0 = 256 KiB */
  int64_t deadline_ns;        /* of every call that names none; 0 = 300 s */
  int64_t connect_timeout_ns; /* 0 = 30 s */
  int64_t master_grace_ns;    /* how long to wait for a lost master; 0 = 60 s */
  const char* master;         /* "host:port[,host:port...]"; required */
  const char* token;          /* NULL: plain, loopback only */
  const char* site;           /* NULL: a site of its own */
  const char* bind;           /* where to listen; NULL: chosen by master; "none": dial out only */
  const char* advertise;      /* "host:port[,host:port...]" told to others; NULL: as bound */
  const char* key_file;       /* this peer's key pair, made if there is none; NULL: a fresh one */
  uint32_t io_threads;        /* two more threads that read and write what is large; 0: where there
                                 are cores for them; 1: always; 2: never */
  int32_t record_on_signal;   /* 1: SIGUSR1 asks for a recording; refused where the program handles
                                 it */
  const char* record;         /* recordings are left in this folder, after faults and when asked;
                                 NULL: none */
  int64_t record_bytes;       /* kept of the last events for them; 0 = 2 MiB; -1: none;
                                 128 MiB at most */
  double max_rate;            /* bytes per second that this peer sends to all others together, at
                                 least 10000; 0: no bound */
  double day_bytes;           /* and bytes in any day, at least 9e8; 0: no bound */
  const char* group;          /* of the run, a run of its own with its rights; NULL: the run */
} jccl_options;

#define JCCL_OPTIONS_INIT \
  {sizeof(jccl_options),  \
   0,                     \
   0,                     \
   0,                     \
   0,                     \
   0,                     \
   0,                     \
   0,                     \
   0,                     \
   0,                     \
   NULL,                  \
   NULL,                  \
   NULL,                  \
   NULL,                  \
   NULL,                  \
   NULL,                  \
   0,                     \
   0,                     \
   NULL,                  \
   0,                     \
   0,                     \
   0,                     \
   NULL}

/* Joins a run. Codes: OK, MASTER_LOST (reconnect), VERSION, WRONG_RUN, AUTH, IO, INVALID (fix). */
JCCL_EXPORT int32_t jccl_connect(const jccl_options* options, jccl_comm** comm);
/* Leaves the run gracefully; open calls end with CLOSED (or IN_DOUBT), later ones answer CLOSED.
 * May be called twice and from any thread. Codes: OK, INVALID. */
JCCL_EXPORT int32_t jccl_close(jccl_comm* comm);
/* Closes, and frees the object: no other call may be using it. NULL is allowed. */
JCCL_EXPORT void jccl_free(jccl_comm* comm);
/* Ends every open round with ABORTED (or IN_DOUBT); the communicator stays usable. A handle that no
 * thread waits for stays open until its tag is started anew. Codes: OK, INVALID. */
JCCL_EXPORT int32_t jccl_abort(jccl_comm* comm);
/* Leaves a recording of this peer, as jccl_master_record does of a master. */
JCCL_EXPORT int32_t jccl_record(jccl_comm* comm, const char* why, char* text, size_t* size);

/* ---- rounds ---- */

enum jccl_dtype {
  JCCL_F32 = 1,
  JCCL_F64,
  JCCL_BF16,
  JCCL_F16,
  JCCL_I8,
  JCCL_I16,
  JCCL_I32,
  JCCL_I64,
  JCCL_U8,
  JCCL_U16,
  JCCL_U32,
  JCCL_U64
};
enum jccl_op { JCCL_SUM = 1, JCCL_MEAN, JCCL_MIN, JCCL_MAX, JCCL_PROD };
enum jccl_codec {                      /* how an array travels */
                  JCCL_CODEC_NONE = 0, /* as its dtype */
                  JCCL_CODEC_BF16 = 1,
                  JCCL_CODEC_FP16 = 2,
                  JCCL_CODEC_INT8 =
                      3, /* blocks of 256 with an f32 scale: 3.94 times fewer bytes than f32 */
                  JCCL_CODEC_FP8 = 4,   /* e4m3 in blocks of 256 with a bf16 scale: 3.97 times */
                  JCCL_CODEC_INT4 = 5,  /* blocks of 64 with a bf16 scale: 7.53 times */
                  JCCL_CODEC_E3M0 = 6,  /* sign and 3 exponent bits, blocks as int4: 7.53 times */
                  JCCL_CODEC_TOPK = 7,  /* the `kept` largest of each 4096, as index and f32 */
                  JCCL_CODEC_INT2 = 8,  /* -1, 0, 1 in blocks as int4: 14.2 times */
                  JCCL_CODEC_STAT2 = 9, /* two magnitudes by blocks of 64: 12.8 times */
                  JCCL_CODEC_TOPK2 = 10 /* as TOPK, values as STAT2 */
};
enum jccl_collective {
  JCCL_ALL_REDUCE = 1,
  JCCL_ALL_GATHER = 2,
  JCCL_REDUCE_SCATTER = 3,
  JCCL_BROADCAST = 4,
  JCCL_BARRIER = 5,
  JCCL_ALL_TO_ALL = 6
};

/* `in` is read; `out` is written only when the round commits: a call that fails, whatever its code,
 * leaves it unchanged (but see out_private). They may be the same memory, or not overlap at all.
 * They stay valid until the call (or the wait of its handle) returned. */
typedef struct {
  int32_t dtype;       /* enum jccl_dtype */
  uint32_t dimensions; /* length of shape */
  uint64_t count;      /* elements of in */
  const void* in;
  void* out;
  const char* path;      /* for messages, e.g. "params/dense/kernel"; may be NULL */
  const uint64_t* shape; /* peers must agree on it; NULL: only on the count */
} jccl_array;

typedef struct {
  uint32_t struct_size;    /* set by JCCL_ROUND_OPTIONS_INIT */
  int32_t op;              /* enum jccl_op; default MEAN */
  int32_t codec;           /* enum jccl_codec */
  int32_t root;            /* broadcast: 1 on the one peer whose value it is */
  uint32_t slots;          /* all_gather: room of out, in contributions; all_to_all: blocks */
  int32_t guard;           /* 1 (default): leave this peer out if it holds NaN or Inf, and refuse
                              such values of others; MISMATCH unless alike on all peers */
  int32_t out_private;     /* 1: no other code reads out before the end, so jccl may write parts of
                              it earlier; after a failed round it holds in (all_gather: anything) */
  uint32_t kept;           /* JCCL_CODEC_TOPK, _TOPK2: entries per block of 4096; 0: 64 */
  double weight;           /* of this peer's value, default 1; 0: receive only */
  int64_t deadline_ns;     /* 0: the communicator's */
  const char* tag;         /* names the stream of rounds; NULL = "default" */
  const char* plan;        /* NULL: automatic; "direct", "exchange", "ring"; "fastest": any order of
                              addition will do, so a ring too if it is predicted to be quicker */
  uint64_t fingerprint[2]; /* of anything that must be equal on all peers; 0: nothing */
  uint64_t seed;           /* of the random rounding, if stochastic; the same on all peers */
  int32_t stochastic;      /* 1: the codec rounds up or down by chance; not topk */
  int32_t reserved;
  /* For a tag that was synchronised: the shared state from which this call's values were made, as
   * the arrays of jccl_sync_state. `in` is read until the blocking call or jccl_start returns;
   * `out` is not used. If it differs from the state that this peer published or adopted last, the
   * call is in no result: RESYNC (after jccl_start: from jccl_wait). Without it: INVALID. */
  const jccl_array* state;
  size_t state_count;
  /* How an all_reduce of floats with op MEAN, in plan direct or exchange, limits false values:
   * "median", "trimmed_mean:trim=0.25", "centered_clip:radius=1" or "norm_limit:times=2", the same
   * on all peers. All but "mean" count each contributor once, whatever its weight. With fewer than
   * three contributors nobody can tell which one lies. NULL: "mean", by weight. */
  const char* aggregator;
  /* all_reduce, all_gather: a share of the sites, above 0.5 and below 1. Once so many have called,
   * the others have grace_ns (0 to a day), then the round begins without them, and their calls are
   * for the next one. It counts if more than half of the members ask for the same; the same on all
   * peers. 0: as the master's --straggler has it. */
  double quorum;
  int64_t grace_ns;
} jccl_round_options;

/* clang-format off */
#define JCCL_ROUND_OPTIONS_INIT                                         \
  {sizeof(jccl_round_options), JCCL_MEAN, JCCL_CODEC_NONE, 0, 0, 1, 0, 0, \
   1.0, 0, NULL, NULL, {0, 0}, 0, 0, 0, NULL, 0, NULL, 0.0, 0}
/* clang-format on */

typedef struct {
  uint32_t struct_size; /* set by JCCL_RESULT_INIT */
  int32_t code;         /* as the function answered */
  uint64_t n;           /* number of the round in its tag */
  uint64_t epoch;
  uint32_t world; /* sites whose values are in the result */
  uint32_t attempts;
  uint64_t sent_bytes; /* payload of all attempts */
  uint64_t received_bytes;
  uint64_t scatter_first; /* reduce_scatter: the elements of array 0 that were written; */
  uint64_t scatter_count; /* all_to_all: own slot, and how many are filled (0: none is own) */
  int64_t elapsed_ns;
  uint32_t contributors;       /* peers whose values are in the result */
  uint32_t contributors_room;  /* set by the caller: length of the two arrays below */
  uint32_t* contributor_ids;   /* filled with the first ones; may be NULL */
  double* contributor_weights; /* likewise */
} jccl_result;

#define JCCL_RESULT_INIT {sizeof(jccl_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL}

/* All block until the round is decided or its deadline passed. options and result may be NULL.
 * Codes: OK, EMPTY, TOO_FEW, DEADLINE, ABORTED (retry), IN_DOUBT, EVICTED, RESYNC (resync),
 * MASTER_LOST, CLOSED (reconnect), MISMATCH, GUARD, INVALID, BUSY_TAG, LIMIT (fix), CORRUPT. */

/* For error feedback, without a communicator: the effect of the options' codec on an array.
 * jccl_roundtrip gives out = decode(encode(in)). jccl_residual gives out = in - decode(encode(in)),
 * the part that a contribution of `in` leaves out. It refuses a stochastic codec, whose error
 * changes in each round. out may be in. Codes: OK, INVALID (fix). */
JCCL_EXPORT int32_t jccl_roundtrip(const jccl_array* array, const jccl_round_options* options);
JCCL_EXPORT int32_t jccl_residual(const jccl_array* array, const jccl_round_options* options);

/* out = the reduction over all peers that contributed; several arrays make one round. */
JCCL_EXPORT int32_t jccl_all_reduce(jccl_comm* comm, const jccl_array* arrays, size_t count,
                                    const jccl_round_options* options, jccl_result* result);
/* out holds slots * count elements: slot = position of the contributor by peer id. */
JCCL_EXPORT int32_t jccl_all_gather(jccl_comm* comm, const jccl_array* arrays, size_t count,
                                    const jccl_round_options* options, jccl_result* result);
/* out holds count elements, of which result->scatter_first, scatter_count are written. */
JCCL_EXPORT int32_t jccl_reduce_scatter(jccl_comm* comm, const jccl_array* arrays, size_t count,
                                        const jccl_round_options* options, jccl_result* result);
/* in and out are slots blocks. Block j of in goes to the contributor in slot j, if there is one;
 * block i of out is from the one in slot i, or zeros. */
JCCL_EXPORT int32_t jccl_all_to_all(jccl_comm* comm, const jccl_array* arrays, size_t count,
                                    const jccl_round_options* options, jccl_result* result);
/* out = in of the one peer with options->root. */
JCCL_EXPORT int32_t jccl_broadcast(jccl_comm* comm, const jccl_array* arrays, size_t count,
                                   const jccl_round_options* options, jccl_result* result);
/* Returns once every member has called it. */
JCCL_EXPORT int32_t jccl_barrier(jccl_comm* comm, const jccl_round_options* options,
                                 jccl_result* result);

typedef uint64_t jccl_handle; /* 0: none */

/* Begins a round and returns; arrays (not the array structs) stay valid until jccl_wait returned.
 * collective: enum jccl_collective. Codes: OK, INVALID, BUSY_TAG, LIMIT (fix), CLOSED. */
JCCL_EXPORT int32_t jccl_start(jccl_comm* comm, int32_t collective, const jccl_array* arrays,
                               size_t count, const jccl_round_options* options,
                               jccl_handle* handle);
/* Ends a round, exactly once per handle. Codes: those of the blocking call; UNKNOWN_TAG for a
 * handle that is not open, BUSY_TAG if another thread waits for it. */
JCCL_EXPORT int32_t jccl_wait(jccl_comm* comm, jccl_handle handle, jccl_result* result);
/* *finished = 1 when jccl_wait would not block. Codes: OK, INVALID. */
JCCL_EXPORT int32_t jccl_test(jccl_comm* comm, jccl_handle handle, int32_t* finished);

/* ---- shared state ---- */

enum {
  JCCL_RESTORE_NONE = 0,
  JCCL_RESTORE_KNOWN =
      1,                 /* an earlier revision that the run's journal knows, else MISMATCH; once */
  JCCL_RESTORE_ANY = 2,  /* any state; once */
  JCCL_RESTORE_AGAIN = 3 /* any state, although the run went back to it before */
};

typedef struct {
  uint32_t struct_size; /* set by JCCL_SYNC_OPTIONS_INIT */
  int32_t source;       /* 1: this peer's state is the run's first */
  int64_t deadline_ns;  /* 0: the communicator's */
  const char* tag;      /* NULL = "default" */
  /* jccl_publish: the state that the new one was made from, as jccl_round_options.state. If it
   * differs from the state that this peer published or adopted last, `in` is not published:
   * RESYNCED. NULL: jccl compares nothing, and an edit becomes this peer's vote on the revision. */
  const jccl_array* before;
  size_t before_count;
  /* jccl_sync_state: JCCL_RESTORE_…: the run goes on from this state, even if there is a newer one.
   * Only operators may ask: with tokens, peers that joined with one of the role admin (AUTH). */
  int32_t restore;
} jccl_sync_options;

#define JCCL_SYNC_OPTIONS_INIT {sizeof(jccl_sync_options), 0, 0, NULL, NULL, 0, 0}

typedef struct {
  uint32_t struct_size; /* set by JCCL_SYNC_RESULT_INIT */
  int32_t code;
  uint64_t revision;
  uint64_t digest[2];
  int32_t replaced; /* 1: out differs from in */
  int32_t edited;   /* 1, jccl_publish: its argument was not the state that this peer held */
  /* 1: replaced because the run went back to an earlier state: training on the caller's state is of
   * no use to the run. */
  int32_t went_back;
  uint64_t received_bytes; /* of the state, from the peers that hold it */
} jccl_sync_result;

#define JCCL_SYNC_RESULT_INIT {sizeof(jccl_sync_result), 0, 0, {0, 0}, 0, 0, 0, 0}

/* Brings the arrays to the newest revision of the tag's state: in is this peer's, out gets the
 * run's. Codes: OK, DEADLINE, ABORTED (retry), MASTER_LOST, CLOSED (reconnect), MISMATCH,
 * STATE_LOST, INVALID, LIMIT (fix). */
JCCL_EXPORT int32_t jccl_sync_state(jccl_comm* comm, const jccl_array* arrays, size_t count,
                                    const jccl_sync_options* options, jccl_sync_result* result);
/* After a committed round: in is the state of the new revision, kept for joiners. RESYNCED: this
 * peer was behind, or its state was edited (without a round since the last revision, in is compared
 * with that), and out holds the newest state instead. Codes: OK, RESYNCED, as sync_state. */
JCCL_EXPORT int32_t jccl_publish(jccl_comm* comm, const jccl_array* arrays, size_t count,
                                 const jccl_sync_options* options, jccl_sync_result* result);

/* ---- questions ---- */

typedef struct {
  uint32_t struct_size; /* set by JCCL_ATTRIBUTES_INIT */
  uint32_t id;          /* 0: observer, not admitted */
  uint64_t incarnation;
  uint64_t epoch;
  uint32_t world; /* sites in the membership */
  uint32_t reserved;
  uint64_t sent_bytes;
  uint64_t received_bytes;
  uint64_t rounds_committed;
  uint64_t rounds_retried;
  char run[40];     /* 32 hex digits */
  char listen[136]; /* where this peer listens; "" if it only dials out */
} jccl_attribute_values;

#define JCCL_ATTRIBUTES_INIT {sizeof(jccl_attribute_values), 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}}

/* Codes of all: OK, INVALID, and LIMIT where a text is answered. */
JCCL_EXPORT int32_t jccl_attributes(const jccl_comm* comm, jccl_attribute_values* values);
/* Names of the sites in the membership, separated by commas. */
JCCL_EXPORT int32_t jccl_sites(const jccl_comm* comm, char* text, size_t* size);
/* The site of a contributor_id of a result, also when it has left. INVALID: an unknown id. */
JCCL_EXPORT int32_t jccl_site_of(const jccl_comm* comm, uint32_t id, char* text, size_t* size);
/* What open calls wait for, in words; "" if nothing does. */
JCCL_EXPORT int32_t jccl_waiting_for(const jccl_comm* comm, char* text, size_t* size);
/* Of the newest state this peer published or was synchronised to. */
JCCL_EXPORT int32_t jccl_state(const jccl_comm* comm, const char* tag, uint64_t* revision,
                               uint64_t digest[2]);

#ifdef __cplusplus
}
#endif

#endif /* JCCL_JCCL_H_ */
