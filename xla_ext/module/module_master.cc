// Python's Master (embedded), the status question to a master elsewhere, and fresh tokens.
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>

#include "base/text.h"
#include "master/ask.h"
#include "master/build_facts.h"
#include "master/journal.h"
#include "master/master.h"
#include "module/module.h"

namespace py = pybind11;

namespace jccl::xla_ext {

namespace {

class Master {
 public:
  explicit Master(std::unique_ptr<master::Master> master) : master_(std::move(master)) {}
  ~Master() { stop(); }
  Master(const Master&) = delete;
  Master& operator=(const Master&) = delete;

  const master::Master& held() const { return *master_; }
  std::string status_json() const {
    if (forked()) raise({base::Code::kClosed, "the master belongs to the process that started it"});
    py::gil_scoped_release release;
    return master_->status_json();
  }
  std::string record(const std::string& why) {
    if (forked()) raise({base::Code::kClosed, "the master belongs to the process that started it"});
    return recorded_by(*master_, why);
  }
  void stop() {
    if (forked()) return (void)master_.release();  // its threads are not here
    py::gil_scoped_release release;
    master_->stop();
  }

 private:
  bool forked() const { return ::getpid() != owner_; }

  std::unique_ptr<master::Master> master_;
  const pid_t owner_ = ::getpid();
};

struct MasterArguments {
  std::string bind, store, token;
  bool insecure = false;
  std::uint32_t start_peers = 1, min_peers = 1;
  double silence = 0.0;
  std::string history, profile, straggler;
  double straggler_after = 10.0, restore_after = 30.0;
  std::string admission, source, peer_networks, record, http;
  std::uint32_t record_mib = 4, max_groups = base::kGroupsMax;
  double weight_max = base::kWeightRatioMax, audit = 0.0, max_rate = 0.0;
  py::object keep_waiting;  // called without arguments while a standby waits; or None
};

// Runs Python's signal handlers, too: the thread that waits is the main one as a rule.
bool keeps_waiting(const py::object& ask, std::optional<py::error_already_set>* fault) {
  const py::gil_scoped_acquire held;
  try {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return ask.is_none() || ask().cast<bool>();
  } catch (py::error_already_set& raised) {
    *fault = std::move(raised);
    return false;
  }
}

std::unique_ptr<Master> start_master(const MasterArguments& arguments) {
  master::MasterConfig config;
  config.bind = arguments.bind;
  config.store = arguments.store;
  config.token = arguments.token;
  config.insecure = arguments.insecure;
  config.start_peers = arguments.start_peers;
  config.min_peers = arguments.min_peers;
  config.profile = arguments.profile;
  if (arguments.silence != 0) config.silence = duration_from(arguments.silence, "silence");
  config.straggler = arguments.straggler;
  config.straggler_after = duration_from(arguments.straggler_after, "straggler_after");
  config.restore_after = duration_from(arguments.restore_after, "restore_after");
  config.admission = arguments.admission;
  config.source = arguments.source;
  config.peer_networks = arguments.peer_networks;
  config.weight_max = arguments.weight_max;
  config.audit = arguments.audit;
  config.max_rate = arguments.max_rate;
  config.history = arguments.history;
  config.record = arguments.record;
  config.http = arguments.http;
  config.max_groups = arguments.max_groups;
  config.record_bytes = record_bytes_from(arguments.record_mib);
  std::optional<py::error_already_set> fault;
  config.keep_waiting = [&] { return keeps_waiting(arguments.keep_waiting, &fault); };
  std::optional<base::Result<std::unique_ptr<master::Master>>> started;
  {
    py::gil_scoped_release release;
    started = master::Master::start(config);
  }
  if (fault.has_value()) throw std::move(*fault);
  if (!started->ok()) raise(started->status());
  return std::make_unique<Master>(std::move(started->value()));
}

master::AskOptions ask_options(const std::string& address, const std::string& token, bool insecure,
                               double timeout, const std::string& group) {
  master::AskOptions options;
  options.master = address;
  options.token = token;
  options.group = group;
  options.insecure = insecure;
  options.time_max = duration_from(timeout, "timeout");
  return options;
}

template <typename Ask>
auto answer_of(Ask ask) {
  const auto answer = std::make_shared<std::optional<decltype(ask())>>();
  interruptible([answer, ask = std::move(ask)] { *answer = ask(); });
  if (!(*answer)->ok()) raise((*answer)->status());
  return (*answer)->value();
}

std::string query_status(const std::string& address, const std::string& token, bool insecure,
                         double timeout, const std::string& group) {
  const auto options = ask_options(address, token, insecure, timeout, group);
  return answer_of([options] { return master::ask_status(options); });
}

std::string give_order(const std::string& address, const std::string& verb,
                       const std::string& subject, double span, const std::string& reason,
                       const std::string& token, bool insecure, double timeout,
                       const std::string& group) {
  master::Order order;
  bool known = false;
  for (const auto& [name, number] : master::kOrderVerbs) {
    if (name == verb) order.verb = number, known = true;
  }
  if (!known) raise({base::Code::kInvalid, base::cat("no order is called '", verb, "'")});
  order.subject = subject;
  order.reason = reason;
  if (span != 0) order.span = duration_from(span, "span");
  const auto options = ask_options(address, token, insecure, timeout, group);
  return answer_of([options, order] { return master::give_order(options, order); });
}

master::StoreOptions store_options(bool insecure) {
  master::StoreOptions options;
  options.insecure = insecure;
  return options;
}

std::string journal_summary(const std::string& store, bool insecure) {
  return answer_of([=] { return master::journal_summary(store, store_options(insecure)); });
}

std::uint64_t copy_journal(const std::string& from, const std::string& to, bool insecure) {
  return answer_of([=] { return master::copy_journal(from, to, store_options(insecure)); });
}

void export_journal(const std::string& store, const py::function& write, bool insecure) {
  const auto line = [&write](const std::string& text) {
    write(text);
    return true;
  };
  const auto status = master::export_journal(store, store_options(insecure), line);
  if (!status.ok()) raise(status);
}

std::string new_token() {
  const auto token = master::new_token_text();
  if (!token.ok()) raise(token.status());
  return token.value();
}

std::string make_token(const std::string& run_secret, const std::string& role, std::uint32_t uses,
                       std::uint64_t expires_unix_s, const std::string& site) {
  const auto token = master::make_token_text({run_secret, role, uses, expires_unix_s, site});
  if (!token.ok()) raise(token.status());
  return token.value();
}

}  // namespace

void bind_master(py::module_& module) {
  py::dict build;
  for (const auto& [name, value] : master::build_facts()) build[py::str(std::string(name))] = value;
  module.attr("build") = build;
  py::class_<Master>(module, "Master")
      .def_static(
          "start",
          [](std::string bind, std::string store, std::string token, bool insecure,
             std::uint32_t start_peers, std::uint32_t min_peers, double silence,
             std::string history, std::string profile, std::string straggler,
             double straggler_after, double restore_after, std::string admission,
             std::string source, std::string peer_networks, std::string record, std::string http,
             std::uint32_t record_mib, std::uint32_t max_groups, double weight_max, double audit,
             double max_rate, py::object keep_waiting) {
            return start_master({std::move(bind),
                                 std::move(store),
                                 std::move(token),
                                 insecure,
                                 start_peers,
                                 min_peers,
                                 silence,
                                 std::move(history),
                                 std::move(profile),
                                 std::move(straggler),
                                 straggler_after,
                                 restore_after,
                                 std::move(admission),
                                 std::move(source),
                                 std::move(peer_networks),
                                 std::move(record),
                                 std::move(http),
                                 record_mib,
                                 max_groups,
                                 weight_max,
                                 audit,
                                 max_rate,
                                 std::move(keep_waiting)});
          },
          py::kw_only(), py::arg("bind") = "127.0.0.1:0",
          py::arg("store") = "memory:", py::arg("token") = "", py::arg("insecure") = false,
          py::arg("start_peers") = 1, py::arg("min_peers") = 1, py::arg("silence") = 0.0,
          py::arg("history") = "", py::arg("profile") = "default", py::arg("straggler") = "wait",
          py::arg("straggler_after") = 10.0, py::arg("restore_after") = 30.0,
          py::arg("admission") = "auto", py::arg("source") = "", py::arg("peer_networks") = "",
          py::arg("record") = "", py::arg("http") = "", py::arg("record_mib") = 4,
          py::arg("max_groups") = base::kGroupsMax, py::arg("weight_max") = base::kWeightRatioMax,
          py::arg("audit") = 0.0, py::arg("max_rate") = 0.0, py::arg("keep_waiting") = py::none())
      .def_property_readonly("address", [](const Master& m) { return m.held().address(); })
      .def_property_readonly("http_address",
                             [](const Master& m) { return m.held().http_address(); })
      .def_property_readonly("token", [](const Master& m) { return m.held().token(); })
      .def_property_readonly("run_id", [](const Master& m) { return m.held().run_id(); })
      .def("status_json", &Master::status_json)
      .def("record", &Master::record, py::arg("why"))
      .def("stop", &Master::stop);
  module.def("query_status", &query_status, py::arg("master"), py::kw_only(), py::arg("token") = "",
             py::arg("insecure") = false, py::arg("timeout") = 5.0, py::arg("group") = "");
  module.def("give_order", &give_order, py::arg("master"), py::kw_only(), py::arg("verb"),
             py::arg("subject"), py::arg("span") = 0.0, py::arg("reason") = "",
             py::arg("token") = "", py::arg("insecure") = false, py::arg("timeout") = 5.0,
             py::arg("group") = "");
  module.def("journal_summary", &journal_summary, py::arg("store"), py::kw_only(),
             py::arg("insecure") = false);
  module.def("copy_journal", &copy_journal, py::arg("source"), py::arg("target"), py::kw_only(),
             py::arg("insecure") = false);
  module.def("export_journal", &export_journal, py::arg("store"), py::arg("write"), py::kw_only(),
             py::arg("insecure") = false);
  module.def("new_token", &new_token);
  module.def("make_token", &make_token, py::arg("run_secret"), py::kw_only(),
             py::arg("role") = "peer", py::arg("uses") = 0, py::arg("expires_unix_s") = 0,
             py::arg("site") = "");
}

}  // namespace jccl::xla_ext
