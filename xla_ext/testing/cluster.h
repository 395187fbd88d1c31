// A master and its peers for tests of handlers, and waiting under a deadline.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "master/master.h"
#include "registry.h"

namespace jccl::xla_ext::testing {

inline bool eventually(const std::function<bool()>& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class Cluster {
 public:
  explicit Cluster(std::uint32_t peers) {
    master::MasterConfig config;
    config.start_peers = peers;
    config.log = [](const std::string&) {};
    auto started = master::Master::start(config);
    EXPECT_TRUE(started.ok()) << started.status().text;
    master_ = std::move(started.value());
    for (std::uint32_t i = 0; i < peers; ++i) {
      peer::ConnectOptions options;
      options.master = master_->address();
      options.deadline = 40 * base::kSecond;
      auto connected = peer::Communicator::connect(options);
      EXPECT_TRUE(connected.ok()) << connected.status().text;
      entries_.push_back(Registry::get().add(connected.value()));
    }
  }
  ~Cluster() {
    for (std::size_t i = 0; i < entries_.size(); ++i) close(i);
    master_->stop();
  }
  Entry& operator[](std::size_t at) { return *entries_[at]; }

  // As the Python object's close().
  void close(std::size_t at) {
    Registry::get().remove(entries_[at]->id());
    entries_[at]->comm().close();
    entries_[at]->let_go();
  }

 private:
  std::unique_ptr<master::Master> master_;
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace jccl::xla_ext::testing
