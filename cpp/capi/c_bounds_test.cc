// The C API at its bounds: what a C program hands in one beyond them, and what it gets to the byte.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>

#include "jccl/jccl.h"

namespace jccl::capi::test {
namespace {

struct Stop {
  void operator()(jccl_master* master) const { jccl_master_stop(master); }
  void operator()(jccl_comm* comm) const { jccl_free(comm); }
};
using Master = std::unique_ptr<jccl_master, Stop>;
using Comm = std::unique_ptr<jccl_comm, Stop>;

Master start_master(jccl_master_options options = JCCL_MASTER_OPTIONS_INIT) {
  jccl_master* master = nullptr;
  options.bind = "127.0.0.1:0";
  EXPECT_EQ(jccl_master_start(&options, &master), JCCL_OK) << jccl_last_error();
  return Master(master);
}

std::string status_of(const Master& master) {
  std::string text(65536, '\0');
  std::size_t size = text.size();
  EXPECT_EQ(jccl_master_status(master.get(), text.data(), &size), JCCL_OK) << jccl_last_error();
  text.resize(size - 1);
  return text;
}

Comm connect(const Master& master, jccl_options options = JCCL_OPTIONS_INIT) {
  jccl_comm* comm = nullptr;
  options.master = jccl_master_address(master.get());
  EXPECT_EQ(jccl_connect(&options, &comm), JCCL_OK) << jccl_last_error();
  return Comm(comm);
}

jccl_array array_of(float* values, std::uint64_t count) {
  jccl_array array{};
  array.dtype = JCCL_F32;
  array.count = count;
  array.in = values, array.out = values;
  return array;
}

std::int32_t reduce_once(const Comm& comm, const jccl_array& array, jccl_result* result = nullptr) {
  jccl_round_options options = JCCL_ROUND_OPTIONS_INIT;
  options.tag = "t";
  return jccl_all_reduce(comm.get(), &array, 1, &options, result);
}

TEST(CBoundsTest, a_text_goes_into_the_room_that_it_needs_and_into_no_less) {
  std::size_t needed = 0;
  EXPECT_EQ(jccl_new_token(nullptr, &needed), JCCL_LIMIT);
  ASSERT_GT(needed, 1u);
  std::string room(needed + 1, '#');
  std::size_t size = needed - 1;
  EXPECT_EQ(jccl_new_token(room.data(), &size), JCCL_LIMIT);
  EXPECT_EQ(size, needed);
  EXPECT_EQ(room, std::string(needed + 1, '#'));
  EXPECT_EQ(jccl_new_token(room.data(), &size), JCCL_OK);
  EXPECT_EQ(room.substr(needed - 1), std::string({'\0', '#'}));
  EXPECT_EQ(jccl_new_token(nullptr, &size), JCCL_INVALID) << "room without memory";
}

TEST(CBoundsTest, a_call_that_went_well_leaves_the_last_error) {
  std::size_t needed = 0;
  EXPECT_EQ(jccl_new_token(nullptr, nullptr), JCCL_INVALID);
  const std::string error = jccl_last_error();
  EXPECT_NE(error.find("size is NULL"), std::string::npos) << error;
  (void)jccl_new_token(nullptr, &needed);
  const std::string limit = jccl_last_error();
  std::string text(needed, '\0');
  EXPECT_EQ(jccl_new_token(text.data(), &needed), JCCL_OK);
  EXPECT_EQ(limit, jccl_last_error());
}

TEST(CBoundsTest, no_duration_is_negative) {
  for (std::int64_t jccl_options::* field :
       {&jccl_options::deadline_ns, &jccl_options::connect_timeout_ns,
        &jccl_options::master_grace_ns}) {
    jccl_options options = JCCL_OPTIONS_INIT;
    jccl_comm* comm = nullptr;
    options.master = "127.0.0.1:1";
    options.connect_timeout_ns = 1;
    options.*field = -1;
    EXPECT_EQ(jccl_connect(&options, &comm), JCCL_INVALID) << jccl_last_error();
  }
  for (std::int64_t jccl_master_options::* field :
       {&jccl_master_options::silence_ns, &jccl_master_options::restart_grace_ns,
        &jccl_master_options::straggler_after_ns}) {
    jccl_master_options options = JCCL_MASTER_OPTIONS_INIT;
    jccl_master* master = nullptr;
    options.bind = "127.0.0.1:0";
    options.*field = -1;
    EXPECT_EQ(jccl_master_start(&options, &master), JCCL_INVALID);
    EXPECT_NE(std::string(jccl_last_error()).find("a duration is negative"), std::string::npos);
    jccl_master_stop(master);
  }
}

TEST(CBoundsTest, a_bound_of_weights_is_a_number_of_at_least_one_or_none) {
  const auto start = [](double weight_max) {
    jccl_master_options options = JCCL_MASTER_OPTIONS_INIT;
    jccl_master* master = nullptr;
    options.weight_max = weight_max;
    const int32_t code = jccl_master_start(&options, &master);
    jccl_master_stop(master);
    return code;
  };
  for (const double good : {0.0, -1.0, 1.0, 50.0, 1e24}) EXPECT_EQ(start(good), JCCL_OK) << good;
  for (const double bad : {0.5, 1e25, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EXPECT_EQ(start(bad), JCCL_INVALID) << bad;
    EXPECT_NE(std::string(jccl_last_error()).find("weight_max"), std::string::npos);
  }
}

TEST(CBoundsTest, a_share_to_audit_is_between_0_and_1) {
  for (const double share : {0.0, 0.5, 1.0, -0.1, 1.5, static_cast<double>(NAN)}) {
    jccl_master_options options = JCCL_MASTER_OPTIONS_INIT;
    jccl_master* master = nullptr;
    options.audit = share;
    const bool good = share >= 0 && share <= 1;
    EXPECT_EQ(jccl_master_start(&options, &master), good ? JCCL_OK : JCCL_INVALID) << share;
    jccl_master_stop(master);
  }
}

TEST(CBoundsTest, io_threads_are_left_to_the_machine_or_wished_for_or_not) {
  jccl_options options = JCCL_OPTIONS_INIT;
  jccl_comm* comm = nullptr;
  options.master = "127.0.0.1:1";
  options.connect_timeout_ns = 1;
  for (options.io_threads = 0; options.io_threads < 3; ++options.io_threads) {
    EXPECT_EQ(jccl_connect(&options, &comm), JCCL_MASTER_LOST);
  }
  EXPECT_EQ(jccl_connect(&options, &comm), JCCL_INVALID);
  EXPECT_NE(std::string(jccl_last_error()).find("io_threads"), std::string::npos);
}

TEST(CBoundsTest, a_connect_waits_as_long_as_it_was_told) {
  jccl_options options = JCCL_OPTIONS_INIT;
  jccl_comm* comm = nullptr;
  options.master = "127.0.0.1:1";
  options.connect_timeout_ns = 20'000'000;
  EXPECT_EQ(jccl_connect(&options, &comm), JCCL_MASTER_LOST);
  EXPECT_EQ(comm, nullptr);
  EXPECT_NE(std::string(jccl_last_error()).find("within 20 ms"), std::string::npos)
      << jccl_last_error();
}

TEST(CBoundsTest, what_a_program_sets_reaches_the_master) {
  jccl_master_options options = JCCL_MASTER_OPTIONS_INIT;
  options.start_peers = 1, options.min_peers = 1;
  const Master one = start_master(options);
  EXPECT_NE(status_of(one).find("\"min_peers\":1"), std::string::npos);
  options.min_peers = 3;
  const Master three = start_master(options);
  EXPECT_NE(status_of(three).find("\"min_peers\":3"), std::string::npos) << status_of(three);
  jccl_options wish = JCCL_OPTIONS_INIT;
  wish.advertise = "127.0.0.1:7,127.0.0.1:8,127.0.0.1:9";
  const Comm comm = connect(one, wish);
  for (const char* address : {"127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:9"}) {
    EXPECT_NE(status_of(one).find(address), std::string::npos) << address;
  }
}

// Nobody read the field, and the master let in whoever came.
TEST(CBoundsTest, who_may_come_in_is_what_a_program_says) {
  for (const auto& [admission, code, words] :
       {std::tuple("by hand", JCCL_INVALID, "unknown admission 'by hand'"),
        std::tuple("list:/nowhere", JCCL_IO, "the list of keys /nowhere can't be read")}) {
    jccl_master_options options = JCCL_MASTER_OPTIONS_INIT;
    jccl_master* master = nullptr;
    options.admission = admission;
    EXPECT_EQ(jccl_master_start(&options, &master), code);
    EXPECT_NE(std::string(jccl_last_error()).find(words), std::string::npos) << jccl_last_error();
    jccl_master_stop(master);
  }
  jccl_master_options options = JCCL_MASTER_OPTIONS_INIT;
  options.admission = "manual";
  const Master master = start_master(options);
  const Comm comm = connect(master);
  std::array<float, 1> value{1};
  jccl_round_options call = JCCL_ROUND_OPTIONS_INIT;
  call.tag = "t", call.deadline_ns = 200'000'000;
  const jccl_array array = array_of(value.data(), value.size());
  EXPECT_EQ(jccl_all_reduce(comm.get(), &array, 1, &call, nullptr), JCCL_DEADLINE)
      << jccl_last_error();
}

TEST(CBoundsTest, a_shape_has_as_many_elements_as_its_array) {
  const Master master = start_master();
  const Comm comm = connect(master);
  std::array<float, 6> values{1, 2, 3, 4, 5, 6};
  jccl_array array = array_of(values.data(), 6);
  std::array<std::uint64_t, 2> shape{2, 3};
  array.shape = shape.data(), array.dimensions = 2;
  EXPECT_EQ(reduce_once(comm, array), JCCL_OK) << jccl_last_error();
  shape = {2, 2};
  EXPECT_EQ(reduce_once(comm, array), JCCL_INVALID);
  shape = {std::uint64_t{1} << 32, std::uint64_t{1} << 32};
  array.count = 0;  // which the product is, modulo 2^64
  EXPECT_EQ(reduce_once(comm, array), JCCL_INVALID);
}

TEST(CBoundsTest, a_contributor_has_the_name_of_its_site) {
  const Master master = start_master();
  const Comm comm = connect(master);
  std::array<float, 2> values{1, 2};
  std::uint32_t id = 0;
  jccl_result result = JCCL_RESULT_INIT;
  result.contributor_ids = &id, result.contributors_room = 1;
  EXPECT_EQ(reduce_once(comm, array_of(values.data(), 2), &result), JCCL_OK) << jccl_last_error();
  std::array<char, 80> site{}, all{};
  std::size_t size = site.size(), room = all.size();
  EXPECT_EQ(jccl_site_of(comm.get(), id, site.data(), &size), JCCL_OK) << jccl_last_error();
  EXPECT_EQ(jccl_sites(comm.get(), all.data(), &room), JCCL_OK);
  EXPECT_STREQ(site.data(), all.data());
  size = site.size();
  EXPECT_EQ(jccl_site_of(comm.get(), id + 1, site.data(), &size), JCCL_INVALID);
  EXPECT_EQ(jccl_site_of(nullptr, id, site.data(), &size), JCCL_INVALID);
}

TEST(CBoundsTest, a_result_is_written_into_its_room_alone) {
  const Master master = start_master();
  const Comm comm = connect(master);
  std::array<float, 2> values{1, 2};
  std::array<std::uint32_t, 2> ids{77, 77};
  std::array<double, 2> weights{77, 77};
  jccl_result result = JCCL_RESULT_INIT;
  result.contributor_ids = ids.data(), result.contributor_weights = weights.data();
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(reduce_once(comm, array_of(values.data(), 2), &result), JCCL_OK) << jccl_last_error();
  }
  EXPECT_EQ(result.contributors, 1u);
  EXPECT_EQ(ids[0], 77u) << "there is no room";
  EXPECT_EQ(weights[0], 77);
  jccl_attribute_values attributes = JCCL_ATTRIBUTES_INIT;
  EXPECT_EQ(jccl_attributes(comm.get(), &attributes), JCCL_OK);
  EXPECT_EQ(attributes.rounds_committed, 3u);
  EXPECT_EQ(attributes.rounds_retried, 0u);
}

TEST(CBoundsTest, a_collective_that_there_is_not_is_refused) {
  const Master master = start_master();
  const Comm comm = connect(master);
  std::array<float, 2> values{1, 2};
  const jccl_array array = array_of(values.data(), 2);
  jccl_handle handle = 77;
  for (const std::int32_t beyond : {JCCL_ALL_REDUCE - 1, JCCL_BARRIER + 1}) {
    EXPECT_EQ(jccl_start(comm.get(), beyond, &array, 1, nullptr, &handle), JCCL_INVALID);
    EXPECT_EQ(handle, 0u);
  }
}

}  // namespace
}  // namespace jccl::capi::test
