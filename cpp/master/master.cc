// The façade over the driver.
#include "master/master.h"

#include "master/driver/driver.h"

namespace jccl::master {

base::Result<std::unique_ptr<Master>> Master::start(const MasterConfig& config) {
  auto driver = std::make_unique<Driver>(config);
  const base::Status opened = driver->open();
  if (!opened.ok()) return opened;
  return std::unique_ptr<Master>(new Master(std::move(driver)));
}

Master::Master(std::unique_ptr<Driver> driver) : driver_(std::move(driver)) {}
Master::~Master() { stop(); }

const std::string& Master::address() const { return driver_->address(); }
const std::string& Master::run_id() const { return driver_->run_text(); }
const std::string& Master::token() const { return driver_->token(); }
const std::string& Master::http_address() const { return driver_->http_address(); }
std::string Master::status_json() const { return driver_->status(); }
base::Status Master::failure() const { return driver_->failure(); }
void Master::evict_site(const std::string& site) { driver_->evict(site); }
base::Result<std::string> Master::record(const std::string& why) { return driver_->record(why); }
void Master::stop() { driver_->stop(); }

}  // namespace jccl::master
