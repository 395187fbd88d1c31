// Calls that two devices of a process make together, on the CUDA platform: rounds, and rounds that
// outlive the call that starts them. Over a driver that stands in for CUDA's and real
// communicators.
#include <gtest/gtest.h>

#include <set>

#include "testing/devices.h"

namespace jccl::xla_ext::testing {
namespace {

// A leaf of eight that an axis of two devices cuts.
class MeshOfTwo {
 public:
  MeshOfTwo(Entry& entry, std::vector<Context> contexts)
      : contexts_(std::move(contexts)), attributes_(round_attributes(entry, "w")) {
    attributes_["geometry"] = std::vector<std::int64_t>{1, 2, 1, 1, 8, 1, 0, -1, 1, 0, 1, 1, 0, 4};
    attributes_["held"] = std::vector<std::int64_t>{entry.id(), 0};
    attributes_["parts"] = 1;
    attributes_["local_devices"] = 2;
    attributes_["count"] = 1;
    for (int i = 0; i < 2; ++i) {
      pieces.push_back(Array::floats({1, 2, 3, 4}));
      passed.push_back(Array::floats(Floats(64, 9.0F)));
      passed_out.push_back(Array::floats(Floats(64, 0.0F)));
      handles.push_back(Array::handle());
      outs.push_back(Array::floats(Floats(4, -7.0F)));
      statuses.push_back(Array::status());
    }
  }

  void start(std::int32_t deadline_ms = 0) {
    both([&](std::size_t i, const ArrayRef& device) {
      return invoke(kCudaTargetTable, "jccl_mesh_start", contexts_[i],
                    {pieces[i], passed[i], device, Array::scalar(1.0F), Array::scalar(deadline_ms),
                     Array::token(4)},
                    {handles[i], passed_out[i], Array::token(0)}, attributes_);
    });
  }
  void done() {
    const auto like = Array::floats({5, 5, 5, 5});
    both([&](std::size_t i, const ArrayRef& device) {
      return invoke(kCudaTargetTable, "jccl_mesh_done", contexts_[i],
                    {like, handles[i], device, passed_out[i], Array::token(4)},
                    {outs[i], statuses[i], Array::token(0)}, attributes_);
    });
  }
  int code(std::size_t i) const { return statuses[i]->read<std::int32_t>()[0]; }

  std::vector<ArrayRef> pieces, passed, passed_out, handles, outs, statuses;

 private:
  template <typename Launch>
  void both(const Launch& launch) {
    std::vector<std::thread> launches;
    for (std::int32_t i = 0; i < 2; ++i) {
      launches.emplace_back([&launch, i, device = Array::scalar(i)] {
        EXPECT_EQ(launch(static_cast<std::size_t>(i), device), "");
      });
    }
    for (auto& one : launches) one.join();
  }

  std::vector<Context> contexts_;
  Attributes attributes_;
};

TEST_F(Devices, a_handle_of_a_mesh_is_one_for_all_and_streams_go_on_before_its_round_ends) {
  Cluster peers(2);
  MeshOfTwo mesh(peers[0], contexts_);
  mesh.start();
  settle(0);  // though the other peer has not come
  settle(1);
  EXPECT_EQ(mesh.handles[0]->read<std::uint32_t>(), mesh.handles[1]->read<std::uint32_t>());
  EXPECT_EQ(mesh.passed_out[1]->read<float>(), mesh.passed[1]->read<float>());
  EXPECT_LT(fake_cuda_bytes("cuMemcpyDtoHAsync"), 100U);  // what passes through stays
  for (const ArrayRef& piece : mesh.pieces) std::memset(piece->data(), 0, piece->bytes());
  Round other({1, 2, 3, 4, 5, 6, 7, 8});
  std::thread elsewhere(
      [&] { EXPECT_EQ(other.launch(kTargetTable, {}, round_attributes(peers[1], "w")), ""); });
  mesh.done();
  elsewhere.join();
  settle(0);
  settle(1);
  EXPECT_EQ(mesh.code(0), 0);
  EXPECT_EQ(mesh.code(1), 0);
  EXPECT_EQ(mesh.outs[0]->read<float>(), (Floats{2, 4, 6, 8}));
  EXPECT_EQ(mesh.outs[1]->read<float>(), (Floats{6, 8, 10, 12}));
  mesh.done();  // a handle is good for once
  settle(0);
  settle(1);
  EXPECT_EQ(mesh.code(0), number(Code::kUnknownTag));
  EXPECT_EQ(mesh.outs[1]->read<float>(), Floats(4, 5.0F));
}

TEST_F(Devices, a_round_of_a_mesh_that_does_not_commit_gives_what_was_put_in) {
  Cluster peers(2);
  MeshOfTwo mesh(peers[0], contexts_);
  mesh.start(200);
  mesh.done();
  settle(0);
  settle(1);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(mesh.code(i) == number(Code::kDeadline) || mesh.code(i) == number(Code::kTooFew));
    EXPECT_EQ(mesh.outs[i]->read<float>(), (Floats{1, 2, 3, 4}));
  }
  mesh.start();
  peers.close(0);
  mesh.done();
  settle(0);
  settle(1);
  EXPECT_EQ(mesh.code(0), number(Code::kClosed));
  EXPECT_EQ(mesh.outs[0]->read<float>(), Floats(4, 5.0F));
}

TEST_F(Devices, a_start_over_a_mesh_without_pinned_memory_says_so_at_its_done) {
  Cluster peers(1);
  MeshOfTwo mesh(peers[0], contexts_);
  fake_cuda_fail("cuMemHostAlloc", 1, kNoMemory, false);
  std::thread release([&] {  // the device that has memory waits for the one that has none
    EXPECT_TRUE(eventually([&] {
      peers[0].rendezvous().abort();
      return fake_cuda_idle(stream(0)) && fake_cuda_idle(stream(1)) &&
             mesh.handles[0]->read<std::uint32_t>()[1] != 0 &&
             mesh.handles[1]->read<std::uint32_t>()[1] != 0;
    }));
  });
  mesh.start();
  release.join();
  std::set<std::uint32_t> codes;
  for (const ArrayRef& handle : mesh.handles) {
    EXPECT_EQ(handle->read<std::uint32_t>()[1] >> 31, 1U);  // a start that failed
    codes.insert(handle->read<std::uint32_t>()[0]);
  }
  EXPECT_EQ(codes.count(static_cast<std::uint32_t>(Code::kLimit)), 1U);
}

TEST_F(Devices, local_devices_make_one_round) {
  Cluster peers(2);
  const Floats whole{1, 2, 3, 4, 5, 6, 7, 8};
  Round other(whole);
  std::thread elsewhere([&] {
    Attributes attributes = round_attributes(peers[1], "w");
    attributes["paths"] = std::string("w");
    EXPECT_EQ(other.launch(kTargetTable, {}, attributes), "");
  });
  Attributes attributes = round_attributes(peers[0], "w");
  // One axis of two devices, which cuts the only leaf.
  attributes["geometry"] = std::vector<std::int64_t>{1, 2, 1, 1, 8, 1, 0, -1, 1, 0, 1, 1, 0, 4};
  attributes["held"] = std::vector<std::int64_t>{peers[0].id(), 0};
  attributes["parts"] = 1;
  attributes["local_devices"] = 2;
  std::vector<ArrayRef> outs, statuses;
  std::vector<std::thread> launches;
  for (int i = 0; i < 2; ++i) {
    const auto piece = Array::floats(Floats(whole.begin() + 4 * i, whole.begin() + 4 * i + 4));
    outs.push_back(Array::floats(Floats(4, 0.0F)));
    statuses.push_back(Array::status());
    launches.emplace_back([&, i, piece, out = outs.back(), status = statuses.back()] {
      EXPECT_EQ(invoke(kCudaTargetTable, "jccl_mesh_round", contexts_[static_cast<std::size_t>(i)],
                       {piece, Array::scalar(std::int32_t{i}), Array::scalar(1.0F),
                        Array::scalar(std::int32_t{0}), Array::token(0)},
                       {out, status, Array::token(0)}, attributes),
                "");
    });
  }
  for (auto& launch : launches) launch.join();
  elsewhere.join();
  for (std::size_t i = 0; i < 2; ++i) {
    settle(static_cast<int>(i));
    EXPECT_EQ(statuses[i]->read<std::int32_t>()[0], 0);
    EXPECT_EQ(statuses[i]->read<std::int32_t>()[1], 2);
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(outs[i]->read<float>()[k], 2 * whole[4 * i + k]);
    }
  }
}

}  // namespace
}  // namespace jccl::xla_ext::testing
