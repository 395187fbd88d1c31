// Members that say what no peer of ours says: what it does to the others of a real cluster.
#include "capi/cluster_support.h"
#include "master/raw_peer.h"
#include "peer/call.h"

namespace jccl::capi::test {
namespace {

constexpr std::size_t kSummed = 4000;

// READY for the call that the honest ones make, but with this hint of a plan.
wire::Ready ready_with(collective::HintKind kind, const RoundOptions& options) {
  std::vector<float> x(kSummed, 1);
  peer::CallRecord call;
  call.leaves = {leaf_of(x, x, "params/w")};
  call.specs = {{Dtype::kF32, kSummed}};
  call.options = options;
  const peer::Descriptor descriptor = peer::describe_call(call, ConnectOptions{}.chunk_bytes);
  collective::Hint hint = collective::decode_hint(descriptor.hint).value();
  hint.kind = kind;
  wire::Ready ready;
  ready.round = {options.tag, 1};
  ready.descriptor = descriptor.digest;
  ready.summary = descriptor.summary;
  ready.hint = collective::encode_hint(hint);
  ready.deadline = 30 * kSecond;
  ready.call = 1;
  return ready;
}

// It wrote past the outputs of every honest peer, and "scatter" committed parts of sums as OK.
TEST(HostileTest, a_plan_hint_of_another_collective_harms_no_honest_peer) {
  for (const auto kind : {collective::HintKind::kGather, collective::HintKind::kScatter,
                          collective::HintKind::kAllToAll}) {
    ClusterOptions options;
    options.start_together = false;
    options.master.start_peers = 3;
    Cluster cluster(2, options);
    RoundOptions call = sum_of("hinted");
    call.deadline = 3 * kSecond;
    call.out_private = true;  // results are received right into the output
    std::vector<std::vector<float>> in(2, std::vector<float>(kSummed, 1));
    // The output is the first third, and nothing may be written behind it.
    std::vector<std::vector<float>> out(2, std::vector<float>(3 * kSummed, -7));
    std::vector<Handle> handles;
    for (std::size_t p = 0; p < 2; ++p) {
      const auto handle = cluster[p].start({leaf_of(in[p], out[p], "params/w")}, call);
      ASSERT_TRUE(handle.ok()) << handle.status().text;
      handles.push_back(handle.value());
    }
    {
      master::Member liar(cluster.address(), 4711, {}, true);
      ASSERT_TRUE(liar.welcome);
      liar.socket.send(ready_with(kind, call));
      (void)liar.socket.next(2000);  // a START, or the end of it
      (void)liar.socket.await<wire::Outcome>(500);
    }
    for (std::size_t p = 0; p < 2; ++p) {
      const RoundResult r = cluster[p].wait(handles[p]);
      // The master refused the liar, and two wait for a third in vain.
      EXPECT_EQ(r.status.code, Code::kTooFew) << r.status.text;
      std::vector<float> expected(3 * kSummed, -7);
      std::fill(expected.begin(), expected.begin() + kSummed, 1.0F);
      EXPECT_TRUE(out[p] == expected) << r.status.text;
    }
  }
}

}  // namespace
}  // namespace jccl::capi::test
