/* A program in C99 that knows jccl.h and nothing else: embeds a master, runs two peers on threads,
 * and checks every value it gets. Exits with 1 at the first wrong one, naming the line. */
#define _POSIX_C_SOURCE 200809L

#include <jccl/jccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND ((int64_t)1000000000)
#define COUNT 1000

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, \
              jccl_last_error());                                                      \
      _Exit(1);                                                                        \
    }                                                                                  \
  } while (0)

#define CHECK_CODE(expected, call)                                                           \
  do {                                                                                       \
    const int32_t got = (call);                                                              \
    if (got != (expected)) {                                                                 \
      fprintf(stderr, "%s:%d: %s: %s instead of %s\n  last error: %s\n", __FILE__, __LINE__, \
              #call, jccl_code_name(got), jccl_code_name(expected), jccl_last_error());      \
      _Exit(1);                                                                              \
    }                                                                                        \
  } while (0)

typedef struct {
  const char* master;
  int index; /* 0 or 1 */
  jccl_comm* comm;
  uint32_t id;
} peer;

static jccl_array array_of(int32_t dtype, uint64_t count, void* in, void* out) {
  jccl_array array;
  memset(&array, 0, sizeof array);
  array.dtype = dtype;
  array.count = count;
  array.in = in;
  array.out = out;
  return array;
}

static jccl_round_options tagged(const char* tag) {
  jccl_round_options options = JCCL_ROUND_OPTIONS_INIT;
  options.tag = tag;
  return options;
}

static void join(peer* self) {
  jccl_options options = JCCL_OPTIONS_INIT;
  jccl_attribute_values values = JCCL_ATTRIBUTES_INIT;
  options.master = self->master;
  options.site = self->index == 0 ? "amsterdam" : "berlin";
  options.start_peers = 2;
  options.deadline_ns = 30 * SECOND;
  CHECK_CODE(JCCL_OK, jccl_connect(&options, &self->comm));
  CHECK_CODE(JCCL_OK, jccl_attributes(self->comm, &values));
  CHECK(values.incarnation != 0);
  CHECK(strlen(values.run) == 32);
}

/* Both end with the source's values. */
static void share_state(peer* self) {
  float weights[COUNT], bias[3] = {0, 0, 0};
  jccl_array arrays[2];
  jccl_sync_options options = JCCL_SYNC_OPTIONS_INIT;
  jccl_sync_result result = JCCL_SYNC_RESULT_INIT;
  uint64_t revision = 77, digest[2] = {0, 0};
  int i;
  for (i = 0; i < COUNT; ++i) weights[i] = self->index == 0 ? (float)i : -1.0f;
  if (self->index == 0) bias[1] = 42.0f;
  arrays[0] = array_of(JCCL_F32, COUNT, weights, weights);
  arrays[1] = array_of(JCCL_F32, 3, bias, bias);
  arrays[1].path = "bias";
  options.tag = "model";
  options.source = self->index == 0;
  CHECK_CODE(JCCL_OK, jccl_sync_state(self->comm, arrays, 2, &options, &result));
  CHECK(result.code == JCCL_OK && result.revision == 0);
  CHECK(result.replaced == (self->index == 0 ? 0 : 1));
  CHECK(self->index == 0 ? result.received_bytes == 0 : result.received_bytes >= 4 * (COUNT + 3));
  CHECK(result.digest[0] != 0 || result.digest[1] != 0);
  for (i = 0; i < COUNT; ++i) CHECK(weights[i] == (float)i);
  CHECK(bias[0] == 0 && bias[1] == 42.0f && bias[2] == 0);
  CHECK_CODE(JCCL_OK, jccl_state(self->comm, "model", &revision, digest));
  CHECK(revision == 0 && digest[0] == result.digest[0] && digest[1] == result.digest[1]);
}

static void check_attributes(peer* self) {
  jccl_attribute_values values = JCCL_ATTRIBUTES_INIT;
  char sites[64], little[4];
  size_t size = sizeof sites;
  int turn;
  /* The source is a member before the other has its state. */
  for (turn = 0; turn < 20000 && values.world < 2; ++turn) {
    const struct timespec millisecond = {0, 1000000};
    CHECK_CODE(JCCL_OK, jccl_attributes(self->comm, &values));
    CHECK(values.id != 0); /* synchronised means admitted */
    if (values.world < 2) nanosleep(&millisecond, NULL);
  }
  CHECK(values.id == 1 || values.id == 2);
  CHECK(values.world == 2);
  CHECK(values.epoch >= 1);
  CHECK(values.listen[0] != 0);
  CHECK_CODE(JCCL_OK, jccl_sites(self->comm, sites, &size));
  CHECK(strstr(sites, "amsterdam") != NULL && strstr(sites, "berlin") != NULL);
  CHECK(size == strlen(sites) + 1);
  size = sizeof little;
  CHECK_CODE(JCCL_LIMIT, jccl_sites(self->comm, little, &size));
  CHECK(size == strlen(sites) + 1);
  self->id = values.id;
}

/* Two arrays, in place and out of place, one round each. */
static void reduce_blocking(peer* self) {
  float in[COUNT], out[COUNT];
  int64_t whole[5];
  uint32_t ids[4] = {0, 0, 0, 0};
  double weights[4] = {0, 0, 0, 0};
  jccl_array arrays[2];
  jccl_round_options options = tagged("grads");
  jccl_result result = JCCL_RESULT_INIT;
  int i, turn;
  result.contributors_room = 4;
  result.contributor_ids = ids;
  result.contributor_weights = weights;
  for (turn = 1; turn <= 3; ++turn) {
    for (i = 0; i < COUNT; ++i) in[i] = (float)(i * turn) + (float)self->index;
    for (i = 0; i < 5; ++i) whole[i] = 10 * self->index + i;
    memset(out, 0, sizeof out);
    options.op = JCCL_SUM;
    arrays[0] = array_of(JCCL_F32, COUNT, in, turn == 2 ? in : out);
    arrays[1] = array_of(JCCL_I64, 5, whole, whole);
    CHECK_CODE(JCCL_OK, jccl_all_reduce(self->comm, arrays, 2, &options, &result));
    for (i = 0; i < COUNT; ++i) {
      CHECK((turn == 2 ? in[i] : out[i]) == (float)(2 * i * turn) + 1.0f);
      if (turn != 2) CHECK(in[i] == (float)(i * turn) + (float)self->index);
    }
    for (i = 0; i < 5; ++i) CHECK(whole[i] == 10 + 2 * i);
    CHECK(result.code == JCCL_OK && result.n == (uint64_t)turn && result.world == 2);
    CHECK(result.attempts >= 1 && result.epoch >= 1);
    CHECK(result.contributors == 2 && ids[0] == 1 && ids[1] == 2 && ids[2] == 0);
    CHECK(weights[0] == 1.0 && weights[1] == 1.0);
  }
}

static void reduce_weighted_int8(peer* self) {
  float in[COUNT], out[COUNT];
  jccl_array array = array_of(JCCL_F32, COUNT, in, out);
  jccl_round_options options = tagged("weighted");
  int i;
  for (i = 0; i < COUNT; ++i) in[i] = self->index == 0 ? 4.0f : 8.0f;
  options.weight = self->index == 0 ? 3.0 : 1.0;
  options.codec = JCCL_CODEC_INT8;
  CHECK_CODE(JCCL_OK, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(out[i] > 4.9f && out[i] < 5.1f);
}

/* A weight buys no say, and of two the median is the mean. */
static void reduce_robustly(peer* self) {
  float in[COUNT], out[COUNT];
  jccl_array array = array_of(JCCL_F32, COUNT, in, out);
  jccl_round_options options = tagged("robust");
  int i;
  for (i = 0; i < COUNT; ++i) in[i] = self->index == 0 ? 4.0f : 8.0f;
  options.weight = self->index == 0 ? 3.0 : 1.0;
  options.aggregator = "krum";
  CHECK_CODE(JCCL_INVALID, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  CHECK(strstr(jccl_last_error(), "unknown aggregator 'krum'") != NULL);
  options.aggregator = "median";
  CHECK_CODE(JCCL_OK, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(out[i] == 6.0f);
}

/* What the first of four entries per block leave out comes with the next round. */
static void feed_errors_back(peer* self) {
  float left[COUNT], zeros[COUNT], sent[COUNT];
  jccl_array array = array_of(JCCL_F32, COUNT, left, left);
  jccl_round_options options = tagged("feedback");
  int i;
  (void)self;
  options.codec = JCCL_CODEC_TOPK;
  options.kept = 4;
  for (i = 0; i < COUNT; ++i) left[i] = (float)i;
  array.out = sent;
  CHECK_CODE(JCCL_OK, jccl_roundtrip(&array, &options));
  array.out = left;
  CHECK_CODE(JCCL_OK, jccl_residual(&array, &options));
  for (i = 0; i < COUNT; ++i) CHECK(left[i] + sent[i] == (float)i);
  for (i = 0; i < COUNT; ++i) CHECK((sent[i] == 0) == (i < COUNT - 4));
  array.out = zeros;
  options.stochastic = 1;
  CHECK_CODE(JCCL_INVALID, jccl_residual(&array, &options));
  options.codec = JCCL_CODEC_INT4;
  CHECK_CODE(JCCL_INVALID, jccl_residual(&array, &options)); /* kept */
  options.kept = 0;
  CHECK_CODE(JCCL_INVALID, jccl_residual(&array, &options)); /* its error is of one round */
  options.stochastic = 0;
  CHECK_CODE(JCCL_OK, jccl_residual(&array, &options));
  CHECK_CODE(JCCL_INVALID, jccl_residual(NULL, &options));
}

/* Three rounds in flight at once, waited for in the other order. */
static void reduce_async(peer* self) {
  static const char* const kTags[3] = {"a", "b", "c"};
  double in[3][COUNT], out[3][COUNT];
  jccl_handle handles[3];
  int32_t finished = -1;
  int i, round;
  for (round = 0; round < 3; ++round) {
    jccl_array array = array_of(JCCL_F64, COUNT, in[round], out[round]);
    jccl_round_options options = tagged(kTags[round]);
    for (i = 0; i < COUNT; ++i) in[round][i] = 100.0 * round + self->index;
    CHECK_CODE(JCCL_OK,
               jccl_start(self->comm, JCCL_ALL_REDUCE, &array, 1, &options, &handles[round]));
    CHECK(handles[round] != 0);
  }
  for (round = 2; round >= 0; --round) {
    jccl_result result = JCCL_RESULT_INIT;
    CHECK_CODE(JCCL_OK, jccl_test(self->comm, handles[round], &finished));
    CHECK(finished == 0 || finished == 1);
    CHECK_CODE(JCCL_OK, jccl_wait(self->comm, handles[round], &result));
    CHECK(result.world == 2);
    for (i = 0; i < COUNT; ++i) CHECK(out[round][i] == 100.0 * round + 0.5);
    CHECK_CODE(JCCL_UNKNOWN_TAG, jccl_wait(self->comm, handles[round], &result));
    CHECK(result.code == JCCL_UNKNOWN_TAG);
  }
}

static void other_collectives(peer* self) {
  int32_t mine[2], all[4] = {-1, -1, -1, -1};
  float values[64], scattered[64];
  jccl_array array = array_of(JCCL_I32, 2, mine, all);
  jccl_round_options options = tagged("gather");
  jccl_result result = JCCL_RESULT_INIT;
  uint64_t i;
  mine[0] = (int32_t)self->id;
  mine[1] = (int32_t)self->id * 10;
  options.slots = 2;
  CHECK_CODE(JCCL_OK, jccl_all_gather(self->comm, &array, 1, &options, &result));
  CHECK(all[0] == 1 && all[1] == 10 && all[2] == 2 && all[3] == 20);

  options = tagged("broadcast");
  options.root = self->index == 1;
  for (i = 0; i < 64; ++i) values[i] = self->index == 1 ? (float)i : 0.0f;
  array = array_of(JCCL_F32, 64, values, values);
  CHECK_CODE(JCCL_OK, jccl_broadcast(self->comm, &array, 1, &options, NULL));
  for (i = 0; i < 64; ++i) CHECK(values[i] == (float)i);

  options = tagged("scatter");
  options.op = JCCL_SUM;
  array = array_of(JCCL_F32, 64, values, scattered);
  CHECK_CODE(JCCL_OK, jccl_reduce_scatter(self->comm, &array, 1, &options, &result));
  CHECK(result.scatter_first + result.scatter_count <= 64);
  for (i = result.scatter_first; i < result.scatter_first + result.scatter_count; ++i) {
    CHECK(scattered[i] == 2.0f * (float)i);
  }
  options = tagged("blocks");
  options.slots = 3;
  for (i = 0; i < 6; ++i) values[i] = (float)(100 * self->id + i);
  array = array_of(JCCL_F32, 6, values, scattered);
  CHECK_CODE(JCCL_OK, jccl_all_to_all(self->comm, &array, 1, &options, &result));
  CHECK(result.scatter_first + 1 == self->id && result.scatter_count == 2);
  for (i = 0; i < 6; ++i) {
    const uint64_t from = 100 * (1 + i / 2), own = 2 * result.scatter_first + i % 2;
    CHECK(scattered[i] == (i < 4 ? (float)(from + own) : 0.0f));
  }
  options = tagged("together");
  CHECK_CODE(JCCL_OK, jccl_barrier(self->comm, &options, NULL));
}

/* What one sends the other receives, and nothing comes back. */
static void count_bytes(peer* self) {
  float values[COUNT];
  jccl_array array = array_of(JCCL_F32, COUNT, values, values);
  jccl_round_options options = tagged("counted");
  jccl_result result = JCCL_RESULT_INIT;
  jccl_attribute_values before = JCCL_ATTRIBUTES_INIT, after = JCCL_ATTRIBUTES_INIT;
  int i;
  for (i = 0; i < COUNT; ++i) values[i] = self->index == 0 ? (float)i : 0.0f;
  options.root = self->index == 0;
  CHECK_CODE(JCCL_OK, jccl_attributes(self->comm, &before));
  CHECK_CODE(JCCL_OK, jccl_broadcast(self->comm, &array, 1, &options, &result));
  CHECK_CODE(JCCL_OK, jccl_attributes(self->comm, &after));
  if (self->index == 0) {
    CHECK(result.sent_bytes >= sizeof values && result.received_bytes < sizeof values);
    CHECK(after.sent_bytes - before.sent_bytes >= sizeof values);
    CHECK(after.received_bytes - before.received_bytes < sizeof values);
  } else {
    CHECK(result.received_bytes >= sizeof values && result.sent_bytes < sizeof values);
    CHECK(after.received_bytes - before.received_bytes >= sizeof values);
    CHECK(after.sent_bytes - before.sent_bytes < sizeof values);
  }
}

/* A round of the state's tag, then the new state: both stand at revision 1. */
static void next_revision(peer* self) {
  float step[4] = {1, 2, 3, 4}, state[4], old[4];
  jccl_array array = array_of(JCCL_F32, 4, state, state), before;
  const jccl_round_options meeting = tagged("together");
  jccl_round_options options;
  jccl_sync_options sync = JCCL_SYNC_OPTIONS_INIT;
  jccl_sync_result result = JCCL_SYNC_RESULT_INIT;
  uint64_t digests[2], revision = 0;
  int i;
  for (i = 0; i < 4; ++i) state[i] = self->index == 0 ? 10.0f : 0.0f;
  sync.tag = "small";
  sync.source = self->index == 0;
  /* A later state begins with the first who brings it: the source, then the other. */
  if (self->index == 1) CHECK_CODE(JCCL_OK, jccl_barrier(self->comm, &meeting, NULL));
  CHECK_CODE(JCCL_OK, jccl_sync_state(self->comm, &array, 1, &sync, &result));
  if (self->index == 0) CHECK_CODE(JCCL_OK, jccl_barrier(self->comm, &meeting, NULL));
  options = tagged("small");
  before = array_of(JCCL_F32, 4, state, NULL);
  array = array_of(JCCL_F32, 4, step, step);
  CHECK_CODE(JCCL_INVALID, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  CHECK(strstr(jccl_last_error(), "state=") != NULL);
  options.state = &before;
  options.state_count = 1;
  state[3] += 1;
  CHECK_CODE(JCCL_RESYNC, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  CHECK(strstr(jccl_last_error(), "array") != NULL || strstr(jccl_last_error(), "leaf 0") != NULL);
  array = array_of(JCCL_F32, 4, state, state);
  CHECK_CODE(JCCL_RESYNCED, jccl_publish(self->comm, &array, 1, &sync, &result));
  CHECK(result.revision == 0 && result.replaced == 1 && result.edited == 1);
  array = array_of(JCCL_F32, 4, step, step);
  for (i = 0; i < 2; ++i) { /* each half of a fingerprint counts */
    CHECK_CODE(JCCL_OK, jccl_barrier(self->comm, &meeting, NULL));
    options.fingerprint[i] = 5 + (uint64_t)self->index;
    CHECK_CODE(JCCL_MISMATCH, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
    CHECK(strstr(jccl_last_error(), "fingerprint") != NULL);
    options.fingerprint[i] = 5;
  }
  CHECK_CODE(JCCL_OK, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  memcpy(old, state, sizeof old);
  before = array_of(JCCL_F32, 4, old, NULL);
  sync.before = &before;
  sync.before_count = 1;
  for (i = 0; i < 4; ++i) state[i] += step[i];
  array = array_of(JCCL_F32, 4, state, state);
  CHECK_CODE(JCCL_OK, jccl_publish(self->comm, &array, 1, &sync, &result));
  CHECK(result.revision == 1 && result.replaced == 0);
  for (i = 0; i < 4; ++i) CHECK(state[i] == 11.0f + (float)i);
  CHECK_CODE(JCCL_OK, jccl_state(self->comm, "small", &revision, digests));
  CHECK(revision == 1 && digests[0] == result.digest[0] && digests[1] == result.digest[1]);
}

static void disagree(peer* self) {
  float in[8] = {0}, out[8] = {7, 7, 7, 7, 7, 7, 7, 7};
  jccl_array array = array_of(JCCL_F32, self->index == 0 ? 8 : 7, in, out);
  jccl_round_options options = tagged("disagree");
  jccl_result result = JCCL_RESULT_INIT;
  CHECK_CODE(JCCL_MISMATCH, jccl_all_reduce(self->comm, &array, 1, &options, &result));
  CHECK(result.code == JCCL_MISMATCH);
  CHECK(strcmp(jccl_code_remedy(result.code), "fix") == 0);
  CHECK(strlen(jccl_last_error()) > 10);
}

static void wait_alone(peer* self) {
  float in[2] = {1, 2}, out[2] = {5, 6};
  jccl_array array = array_of(JCCL_F32, 2, in, out);
  jccl_round_options options = tagged("alone");
  if (self->index == 0) {
    options.deadline_ns = SECOND;
    CHECK_CODE(JCCL_DEADLINE, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
    CHECK(strstr(jccl_last_error(), "berlin") != NULL);
    CHECK(in[0] == 1 && in[1] == 2);
  }
  options = tagged("together");
  CHECK_CODE(JCCL_OK, jccl_barrier(self->comm, &options, NULL));
}

static void bad_arguments(peer* self) {
  float in[2] = {1, 2};
  jccl_array array = array_of(99, 2, in, in);
  jccl_round_options options = JCCL_ROUND_OPTIONS_INIT;
  jccl_result result = JCCL_RESULT_INIT;
  jccl_handle handle = 5;
  int32_t finished = 0;
  CHECK_CODE(JCCL_INVALID, jccl_all_reduce(self->comm, &array, 1, &options, &result));
  CHECK(result.code == JCCL_INVALID);
  CHECK(strstr(jccl_last_error(), "dtype") != NULL);
  array.dtype = JCCL_F32;
  array.out = NULL;
  CHECK_CODE(JCCL_INVALID, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  array.out = in;
  CHECK_CODE(JCCL_INVALID, jccl_all_reduce(NULL, &array, 1, &options, NULL));
  CHECK_CODE(JCCL_INVALID, jccl_all_reduce(self->comm, NULL, 1, &options, NULL));
  options.op = 17;
  CHECK_CODE(JCCL_INVALID, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  options.op = JCCL_SUM;
  options.struct_size = 0;
  CHECK_CODE(JCCL_INVALID, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  options.struct_size = sizeof options + 8;
  CHECK_CODE(JCCL_VERSION, jccl_all_reduce(self->comm, &array, 1, &options, NULL));
  CHECK_CODE(JCCL_INVALID, jccl_start(self->comm, 9, &array, 1, NULL, &handle));
  CHECK(handle == 0);
  CHECK_CODE(JCCL_UNKNOWN_TAG, jccl_wait(self->comm, 123456789, NULL));
  CHECK_CODE(JCCL_INVALID, jccl_test(NULL, 1, &finished));
  CHECK_CODE(JCCL_INVALID, jccl_abort(NULL));
}

static void leave(peer* self) {
  float in[1] = {1};
  jccl_array array = array_of(JCCL_F32, 1, in, in);
  CHECK_CODE(JCCL_OK, jccl_close(self->comm));
  CHECK_CODE(JCCL_OK, jccl_close(self->comm));
  CHECK_CODE(JCCL_CLOSED, jccl_all_reduce(self->comm, &array, 1, NULL, NULL));
  CHECK(strcmp(jccl_code_remedy(JCCL_CLOSED), "reconnect") == 0);
  jccl_free(self->comm);
}

static void* live(void* argument) {
  peer* self = argument;
  join(self);
  share_state(self);
  check_attributes(self);
  reduce_blocking(self);
  reduce_weighted_int8(self);
  reduce_robustly(self);
  feed_errors_back(self);
  reduce_async(self);
  other_collectives(self);
  count_bytes(self);
  next_revision(self);
  disagree(self);
  bad_arguments(self);
  wait_alone(self);
  leave(self);
  return NULL;
}

static void check_codes(void) {
  int32_t code;
  for (code = 0; code < JCCL_CODE_COUNT; ++code) {
    CHECK(strcmp(jccl_code_name(code), "Unknown") != 0);
  }
  CHECK(strcmp(jccl_code_name(JCCL_CODE_COUNT), "Unknown") == 0);
  CHECK(strcmp(jccl_code_name(JCCL_IN_DOUBT), "InDoubt") == 0);
  CHECK(strcmp(jccl_code_remedy(JCCL_OK), "none") == 0);
  CHECK(strcmp(jccl_code_remedy(JCCL_DEADLINE), "retry") == 0);
  CHECK(strcmp(jccl_version(), "0.1.0") == 0);
}

static void check_refusals(const char* address) {
  jccl_master_options bad = JCCL_MASTER_OPTIONS_INIT;
  jccl_options nowhere = JCCL_OPTIONS_INIT;
  jccl_master* master = NULL;
  jccl_comm* comm = NULL;
  bad.bind = address; /* in use */
  CHECK_CODE(JCCL_IO, jccl_master_start(&bad, &master));
  CHECK(master == NULL && strlen(jccl_last_error()) > 10);
  bad.bind = "0.0.0.0:0";
  CHECK_CODE(JCCL_AUTH, jccl_master_start(&bad, &master));
  CHECK_CODE(JCCL_INVALID, jccl_connect(&nowhere, &comm));
  CHECK_CODE(JCCL_INVALID, jccl_connect(NULL, &comm));
  nowhere.master = "127.0.0.1:1";
  nowhere.connect_timeout_ns = SECOND / 2;
  CHECK_CODE(JCCL_MASTER_LOST, jccl_connect(&nowhere, &comm));
  CHECK(comm == NULL && strstr(jccl_last_error(), "127.0.0.1:1") != NULL);
}

int main(void) {
  static char status[65536];
  size_t size = sizeof status;
  jccl_master* master = NULL;
  peer peers[2];
  pthread_t threads[2];
  char address[128];
  int i;
  check_codes();
  CHECK_CODE(JCCL_OK, jccl_master_start(NULL, &master));
  CHECK(strlen(jccl_master_run(master)) == 32);
  strncpy(address, jccl_master_address(master), sizeof address - 1);
  address[sizeof address - 1] = 0;
  check_refusals(address);
  memset(peers, 0, sizeof peers);
  for (i = 0; i < 2; ++i) {
    peers[i].master = address;
    peers[i].index = i;
    CHECK(pthread_create(&threads[i], NULL, live, &peers[i]) == 0);
  }
  for (i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(peers[0].id + peers[1].id == 3);
  CHECK_CODE(JCCL_OK, jccl_master_status(master, status, &size));
  CHECK(strstr(status, "\"grads\"") != NULL);
  jccl_master_stop(master);
  jccl_master_stop(NULL);
  printf("c_program_test: every value as expected\n");
  return 0;
}
