/* A master and two peers in one process; each contributes its number and gets the mean. */
#include <jccl/jccl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  const char* master;
  float number;
} peer;

static int failed(const char* what, int32_t code) {
  if (code == JCCL_OK) return 0;
  fprintf(stderr, "%s: %s: %s (remedy: %s)\n", what, jccl_code_name(code), jccl_last_error(),
          jccl_code_remedy(code));
  return 1;
}

static void* train(void* argument) {
  const peer* self = argument;
  jccl_options options = JCCL_OPTIONS_INIT;
  jccl_round_options round = JCCL_ROUND_OPTIONS_INIT; /* mean, as the dtype */
  jccl_result result = JCCL_RESULT_INIT;
  jccl_comm* comm = NULL;
  jccl_array array;
  float values[4];
  int i;

  options.master = self->master;
  options.start_peers = 2; /* nobody begins alone */
  if (failed("connect", jccl_connect(&options, &comm))) return argument;

  for (i = 0; i < 4; ++i) values[i] = self->number;
  memset(&array, 0, sizeof array);
  array.dtype = JCCL_F32;
  array.count = 4;
  array.in = array.out = values; /* in place: untouched unless the round commits */
  round.tag = "example";
  if (failed("all_reduce", jccl_all_reduce(comm, &array, 1, &round, &result))) {
    jccl_free(comm);
    return argument;
  }
  printf("mean %.1f over %u sites\n", values[0], result.world);
  jccl_free(comm); /* leaves the run */
  return NULL;
}

int main(void) {
  jccl_master* master = NULL;
  peer peers[2];
  pthread_t threads[2];
  void* fault;
  int i, faults = 0;

  if (failed("master", jccl_master_start(NULL, &master))) return 1;
  for (i = 0; i < 2; ++i) {
    peers[i].master = jccl_master_address(master);
    peers[i].number = (float)(1 + 2 * i);
    if (pthread_create(&threads[i], NULL, train, &peers[i]) != 0) return 1;
  }
  for (i = 0; i < 2; ++i) {
    pthread_join(threads[i], &fault);
    faults += fault != NULL;
  }
  jccl_master_stop(master);
  return faults;
}
