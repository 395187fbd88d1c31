/* Three peers of one run: two of them in the group "west", the third one in "east". */
#include <jccl/jccl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  const char* master;
  const char* group;
  unsigned sites;
} peer;

static int failed(const char* what, int32_t code) {
  if (code == JCCL_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, jccl_code_name(code), jccl_last_error());
  return 1;
}

static void* work(void* argument) {
  const peer* self = argument;
  jccl_options options = JCCL_OPTIONS_INIT;
  jccl_result result = JCCL_RESULT_INIT;
  jccl_comm* comm = NULL;
  jccl_array array;
  float value = 1;

  options.master = self->master;
  options.group = self->group;
  options.start_peers = self->sites; /* of the group */
  if (failed("connect", jccl_connect(&options, &comm))) return argument;

  memset(&array, 0, sizeof array);
  array.dtype = JCCL_F32;
  array.count = 1;
  array.in = array.out = &value;
  if (failed("all_reduce", jccl_all_reduce(comm, &array, 1, NULL, &result))) {
    jccl_free(comm);
    return argument;
  }
  printf("%s: mean %.1f over %u sites\n", self->group, value, result.world);
  jccl_free(comm);
  return NULL;
}

int main(void) {
  jccl_master* master = NULL;
  peer peers[3] = {{NULL, "west", 2}, {NULL, "west", 2}, {NULL, "east", 1}};
  pthread_t threads[3];
  void* fault;
  int i, faults = 0;

  if (failed("master", jccl_master_start(NULL, &master))) return 1;
  for (i = 0; i < 3; ++i) {
    peers[i].master = jccl_master_address(master);
    if (pthread_create(&threads[i], NULL, work, &peers[i]) != 0) return 1;
  }
  for (i = 0; i < 3; ++i) {
    pthread_join(threads[i], &fault);
    faults += fault != NULL;
  }
  jccl_master_stop(master);
  return faults;
}
