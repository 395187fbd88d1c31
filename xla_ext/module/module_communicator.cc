// Python's Communicator: options and numpy arrays in, results out, no GIL while it waits.
#include <pybind11/stl.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include "base/text.h"
#include "calls.h"
#include "collective/aggregator.h"
#include "collective/op.h"
#include "collective/spec.h"
#include "module/arrays.h"
#include "module/keywords.h"
#include "module/module.h"
#include "peer/call.h"
#include "peer/snapshots/snapshots.h"
#include "registry.h"

namespace py = pybind11;

namespace jccl::xla_ext {

namespace {

using base::Code;
using base::Status;

peer::Collective collective_from(const std::string& name) {
  const auto known = collective::collective_from_name(name);
  if (!known) throw py::value_error(base::cat("unknown collective '", name, "'"));
  return *known;
}

base::Digest fingerprint_from(const std::string& hex) {
  if (hex.empty()) return {};
  const auto digest = digest_from(hex);
  if (!digest) throw py::value_error("fingerprint must be 32 hex digits");
  return *digest;
}

using Words = py::array_t<std::uint32_t, py::array::c_style | py::array::forcecast>;

// u32[k,2], two words for each leaf; None: no state is handed in.
std::optional<peer::StateMarks> marks_from(const py::object& given) {
  if (given.is_none()) return std::nullopt;
  const auto words = py::cast<Words>(given);
  if (words.ndim() != 2 || words.shape(1) != 2) throw py::value_error("marks are uint32[k, 2]");
  peer::StateMarks marks;
  for (py::ssize_t i = 0; i < words.shape(0); ++i)
    marks.push_back({words.at(i, 0), words.at(i, 1)});
  return marks;
}

Words marks_to(const peer::StateMarks& marks) {
  Words words({static_cast<py::ssize_t>(marks.size()), py::ssize_t{2}});
  std::uint32_t* at = words.mutable_data();
  for (const auto& [first, second] : marks) {
    *at++ = first;
    *at++ = second;
  }
  return words;
}

Words marks_of_arrays(const Arrays& arrays) {
  const auto leaves = leaves_from(arrays, nullptr, {}, 1);
  peer::StateMarks marks;
  {
    py::gil_scoped_release release;
    marks = peer::marks_of(leaves);
  }
  return marks_to(marks);
}

// Of a state with these leaves, whatever its tag and revision.
std::string digest_of_arrays(const Arrays& arrays) {
  const auto leaves = leaves_from(arrays, nullptr, {}, 1);
  py::gil_scoped_release release;
  return base::to_hex(peer::SnapshotStore().make("", 0, leaves)->held.digest);
}

peer::RoundOptions round_options(Keywords& keywords) {
  peer::RoundOptions options;
  options.tag = keywords.take<std::string>("tag", "default");
  options.collective = collective_from(keywords.take<std::string>("collective", "all_reduce"));
  const auto op = keywords.take<std::string>("op", "mean");
  const auto codec = keywords.take<std::string>("codec", "none");
  const auto known_op = collective::op_from_name(op);
  const auto known_codec = codec::codec_from_name(codec);
  if (!known_op) throw py::value_error(base::cat("unknown op '", op, "'"));
  if (!known_codec) throw py::value_error(base::cat("unknown codec '", codec, "'"));
  const auto aggregator = keywords.take<std::string>("aggregator", "mean");
  const auto known_aggregator = collective::aggregator_from_name(aggregator);
  if (!known_aggregator) {
    throw py::value_error(base::cat("unknown aggregator '", aggregator, "'"));
  }
  const auto quorum = keywords.take<std::string>("quorum", "");
  const auto known_quorum = base::quorum_from_text(quorum);
  if (!known_quorum) throw py::value_error(base::cat("unknown quorum '", quorum, "'"));
  options.quorum = *known_quorum;
  options.op = *known_op;
  options.codec = *known_codec;
  options.aggregator = *known_aggregator;
  options.weight = keywords.take<double>("weight", 1.0);
  options.root = keywords.take<bool>("root", false);
  options.slots = keywords.take_small("slots", 0);
  options.plan = keywords.take<std::string>("plan", "");
  options.guard = keywords.take<bool>("guard", true);
  options.out_private = keywords.take<bool>("out_private", false);
  options.fingerprint = fingerprint_from(keywords.take<std::string>("fingerprint", ""));
  options.deadline = keywords.take_seconds("deadline", 0);
  options.state = marks_from(keywords.take<py::object>("state", py::none()));
  return options;
}

// The leaves of the state, which the caller keeps while its call begins; none: there may be marks.
Arrays take_state(Keywords& keywords, peer::RoundOptions* options) {
  const auto given = keywords.take<std::optional<Arrays>>("state_leaves", std::nullopt);
  if (!given) return {};
  options->state_leaves = leaves_from(*given, nullptr, {}, 1);
  return *given;
}

std::size_t slots_of(const peer::RoundOptions& options) {
  const auto& spec = collective::spec_of(options.collective);
  if (spec.has_slots() && options.slots == 0) {
    throw py::value_error(base::cat(spec.name, " needs slots="));
  }
  return peer::has_output_of_its_own(options) ? options.slots : 1;
}

using FaultRow = std::tuple<std::uint64_t, std::string, int, std::string, std::uint32_t>;

// (number, tag, code, text, row) of each.
std::vector<FaultRow> rows_of(const std::vector<Fault>& faults) {
  std::vector<FaultRow> rows;
  for (const Fault& fault : faults) {
    rows.emplace_back(fault.number, fault.tag, static_cast<int>(fault.status.code),
                      fault.status.text, fault.row);
  }
  return rows;
}

// What Python holds. Closes when Python lets go of it, unless this is a fork of the process that
// connected: there the threads behind it do not exist, and it is left alone.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (entry_->foreign()) {
      [[maybe_unused]] auto* leaked = new std::shared_ptr<Entry>(std::move(entry_));
      return;
    }
    py::gil_scoped_release release;
    shut();
  }

  static std::unique_ptr<Communicator> connect(const py::kwargs& kwargs);

  std::int64_t registry_id() const { return entry_->id(); }
  bool closed() const { return closed_ || entry_->foreign(); }

  peer::RoundResult run(const Arrays& ins, const Arrays& outs, const py::kwargs& kwargs);
  peer::Handle start(const Arrays& ins, const std::optional<Arrays>& outs,
                     const py::kwargs& kwargs);
  peer::RoundResult wait(peer::Handle handle, const std::optional<Arrays>& outs);
  bool finished(peer::Handle handle) const {
    return !usable().ok() || entry_->comm().finished(handle);
  }
  bool is_open(peer::Handle handle) const {
    return !entry_->foreign() && entry_->comm().is_open(handle);
  }
  peer::SyncResult sync(const Arrays& ins, const Arrays& outs, const py::kwargs& kwargs,
                        bool publish);
  peer::Attributes attributes() const {
    if (entry_->foreign()) raise(usable());
    return entry_->comm().attributes();
  }
  std::string digest(const std::string& tag) const {
    if (entry_->foreign()) raise(usable());
    return base::to_hex(entry_->comm().digest(tag));
  }
  std::uint64_t revision(const std::string& tag) const {
    if (entry_->foreign()) raise(usable());
    return entry_->comm().revision(tag);
  }
  std::string last_fault(const std::string& tag) const {
    return entry_->foreign() ? usable().text : entry_->last_fault(tag);
  }
  std::vector<FaultRow> faults_after(std::uint64_t number) const {
    return entry_->foreign() ? std::vector<FaultRow>{} : rows_of(entry_->faults_after(number));
  }
  std::string new_mistake(const std::string& tag) {
    return entry_->foreign() ? "" : entry_->comm().new_mistake(tag);
  }
  std::vector<FaultRow> open_faults() const {
    return entry_->foreign() ? std::vector<FaultRow>{} : rows_of(entry_->open_faults());
  }
  std::string site_of(base::PeerId id) const {
    return entry_->foreign() ? "" : entry_->comm().site_of(id);
  }
  void tell_found(const std::string& tag, std::uint64_t round, base::PeerId peer, bool differs,
                  double worst, std::uint8_t policy) {
    if (entry_->foreign()) raise(usable());
    const base::Status told = entry_->comm().tell_found({tag, round, peer, differs, worst, policy});
    if (!told.ok()) raise(told);
  }
  std::string waiting_for() const {
    return entry_->foreign() ? usable().text : entry_->comm().waiting_for();
  }
  std::vector<std::pair<std::string, std::string>> waits() const {
    if (entry_->foreign()) return {};
    return entry_->comm().waits();
  }
  py::list timeline() const {
    py::list rounds;
    if (entry_->foreign()) return rounds;
    for (const peer::RoundTimes& t : entry_->comm().timeline()) {
      py::dict round;
      round["tag"] = t.tag;
      round["n"] = t.n;
      round["code"] = static_cast<int>(t.code);
      round["attempts"] = t.attempts;
      const std::pair<const char*, base::Time> times[] = {
          {"begun", t.begun}, {"started", t.started}, {"moved", t.moved},
          {"ended", t.ended}, {"awaited", t.awaited}, {"taken", t.taken}};
      for (const auto& [name, at] : times) {
        round[name] = at == 0 ? py::object(py::none()) : py::float_(static_cast<double>(at) * 1e-9);
      }
      rounds.append(round);
    }
    return rounds;
  }
  void abort() {
    if (entry_->foreign()) return;
    entry_->rendezvous().abort();
    entry_->comm().abort();
  }
  std::string record(const std::string& why) {
    if (entry_->foreign()) raise({base::Code::kClosed, "this communicator is another process's"});
    const auto entry = entry_;
    return recorded_by(entry->comm(), why);
  }
  void leave_on_term(bool leaves) { entry_->leave_on_term(leaves); }
  void leave() {
    if (entry_->foreign()) return;
    const auto entry = entry_;
    py::gil_scoped_release release;
    entry->comm().leave();
  }
  void close() {
    if (entry_->foreign()) return;
    {
      py::gil_scoped_release release;
      shut();
    }
    held_.clear();
  }

 private:
  struct Held {
    Arrays ins, outs;
  };

  Status usable() const {
    if (entry_->foreign()) {
      return {Code::kClosed,
              "the communicator belongs to the process that connected; after a fork, connect anew"};
    }
    if (closed_) return {Code::kClosed, "the communicator is closed; connect anew"};
    return {};
  }
  void shut() {
    closed_ = true;
    Registry::get().remove(entry_->id());
    entry_->comm().close();
    entry_->let_go();
  }

  std::shared_ptr<Entry> entry_;
  bool closed_ = false;
  // Arrays of rounds under way: they must outlive the round, whatever Python drops. GIL-guarded.
  std::map<peer::Handle, Held> held_;
};

std::unique_ptr<Communicator> Communicator::connect(const py::kwargs& kwargs) {
  Keywords keywords(kwargs);
  peer::ConnectOptions options;
  options.master = keywords.take<std::string>("master", "");
  if (options.master.empty()) throw py::value_error("master= must name host:port");
  options.token = keywords.take<std::string>("token", "");
  options.key_file = keywords.take<std::string>("key_file", "");
  if (const auto* of = keywords.take<const Communicator*>("keys_of", nullptr)) {
    if (const base::Status no = of->usable(); !no.ok()) raise(no);
    options.identity = of->entry_->comm().identity();
  }
  options.insecure = keywords.take<bool>("insecure", false);
  options.site = keywords.take<std::string>("site", "");
  options.group = keywords.take<std::string>("group", "");
  options.shard = keywords.take_small("shard", 0);
  options.shards = keywords.take_small("shards", 1);
  options.bind = keywords.take<std::string>("bind", "");
  options.advertise = keywords.take<std::vector<std::string>>("advertise", {});
  options.start_peers = keywords.take_small("start_peers", 0);
  options.stripes = keywords.take_small("stripes", 0);
  options.max_rate = keywords.take<double>("max_rate", 0);
  options.day_bytes = keywords.take<double>("day_bytes", 0);
  options.io_threads = keywords.take<std::optional<bool>>("io_threads", std::nullopt);
  options.chunk_bytes = keywords.take_small("chunk_bytes", 256 * 1024);
  options.deadline = keywords.take_seconds("deadline", 300);
  options.connect_timeout = keywords.take_seconds("connect_timeout", 30);
  options.master_grace = keywords.take_seconds("master_grace", 60);
  options.record = keywords.take<std::string>("record", "");
  options.record_bytes = record_bytes_from(keywords.take_small("record_mib", 2));
  options.record_on_signal = keywords.take<bool>("record_on_signal", false);
  keywords.finish("connect");
  ensure_interrupts();
  using Outcome = base::Result<std::shared_ptr<peer::Communicator>>;
  const auto outcome = std::make_shared<std::optional<Outcome>>();
  interruptible([outcome, options] { *outcome = peer::Communicator::connect(options); });
  if (!(*outcome)->ok()) raise((*outcome)->status());
  return std::make_unique<Communicator>(Registry::get().add((*outcome)->value()));
}

peer::RoundResult Communicator::run(const Arrays& ins, const Arrays& outs,
                                    const py::kwargs& kwargs) {
  Keywords keywords(kwargs);
  peer::RoundOptions options = round_options(keywords);
  const Arrays state = take_state(keywords, &options);
  const auto paths = keywords.take<std::vector<std::string>>("paths", {});
  const auto encoded = keywords.take<std::vector<bool>>("encoded", {});
  keywords.finish("run");
  const auto leaves = leaves_from(ins, outs, paths, slots_of(options), encoded);
  peer::RoundResult result;
  result.status = usable();
  if (!result.status.ok()) return result;
  ensure_interrupts();
  {
    const auto entry = entry_;  // another thread may drop this object while we wait
    py::gil_scoped_release release;
    result = entry->comm().run(leaves, options);
  }
  check_signals();
  return result;
}

peer::Handle Communicator::start(const Arrays& ins, const std::optional<Arrays>& outs,
                                 const py::kwargs& kwargs) {
  Keywords keywords(kwargs);
  peer::RoundOptions options = round_options(keywords);
  const Arrays state = take_state(keywords, &options);
  const auto paths = keywords.take<std::vector<std::string>>("paths", {});
  const auto encoded = keywords.take<std::vector<bool>>("encoded", {});
  keywords.finish("start");
  if (!outs && !encoded.empty()) throw py::value_error("encoded inputs need outputs");
  const auto leaves = outs ? leaves_from(ins, *outs, paths, slots_of(options), encoded)
                           : leaves_from(ins, nullptr, paths, slots_of(options));
  if (const Status status = usable(); !status.ok()) raise(status);
  const auto entry = entry_;
  std::optional<base::Result<peer::Handle>> started;
  {
    py::gil_scoped_release release;
    started = entry->comm().start(leaves, options, /*stage=*/!outs);
  }
  if (!started->ok()) raise(started->status());
  if (outs) {
    held_[started->value()] = {ins, *outs};
  } else {
    std::vector<Shape> shapes;
    for (const auto& leaf : leaves) shapes.push_back({leaf.dtype, leaf.count});
    entry->opened(started->value(), options.tag, std::move(shapes));
  }
  return started->value();
}

peer::RoundResult Communicator::wait(peer::Handle handle, const std::optional<Arrays>& outs) {
  peer::RoundResult result;
  result.status = usable();
  if (!result.status.ok()) return result;
  const bool staged = !held_.contains(handle);
  std::vector<void*> places;
  if (staged && outs) {
    std::vector<Shape> shapes;
    for (const auto& leaf : leaves_from(*outs, &*outs, {}, 1)) {
      shapes.push_back({leaf.dtype, leaf.count});
    }
    base::Tag tag;
    result.status = entry_->take(handle, shapes, &tag);
    if (!result.status.ok()) return result;
    places = places_from(*outs);
  } else if (staged) {
    throw py::value_error("a staged round needs outputs= at wait()");
  }
  ensure_interrupts();
  {
    const auto entry = entry_;
    py::gil_scoped_release release;
    result = entry->comm().wait(handle, staged ? &places : nullptr);
  }
  if (result.status.code != Code::kBusyTag) held_.erase(handle);
  check_signals();
  return result;
}

peer::SyncResult Communicator::sync(const Arrays& ins, const Arrays& outs, const py::kwargs& kwargs,
                                    bool publish) {
  Keywords keywords(kwargs);
  peer::SyncOptions options;
  options.tag = keywords.take<std::string>("tag", "default");
  if (!publish) options.source = keywords.take<bool>("source", false);
  const int wish = publish ? 0 : keywords.take<int>("restore", 0);
  if (wish < 0 || wish > static_cast<int>(base::Wish::kAgain)) {
    throw py::value_error("restore is a number from 0 to 3");
  }
  options.restore = static_cast<base::Wish>(wish);
  options.deadline = keywords.take_seconds("deadline", 0);
  if (publish) options.before = marks_from(keywords.take<py::object>("before", py::none()));
  const auto paths = keywords.take<std::vector<std::string>>("paths", {});
  keywords.finish(publish ? "publish" : "sync_state");
  const auto leaves = leaves_from(ins, &outs, paths, 1);
  peer::SyncResult result;
  result.status = usable();
  if (!result.status.ok()) return result;
  ensure_interrupts();
  {
    const auto entry = entry_;
    py::gil_scoped_release release;
    result = publish ? entry->comm().publish(leaves, options)
                     : entry->comm().sync_state(leaves, options);
  }
  check_signals();
  return result;
}

}  // namespace

void bind_communicator(py::module_& module) {
  bind_results(module);
  module.def("marks", &marks_of_arrays, py::arg("arrays"));
  module.def("state_digest", &digest_of_arrays, py::arg("arrays"));
  py::class_<Communicator>(module, "Communicator")
      .def_static("connect", [](const py::kwargs& kwargs) { return Communicator::connect(kwargs); })
      .def_property_readonly("registry_id", &Communicator::registry_id)
      .def_property_readonly("closed", &Communicator::closed)
      .def("run", &Communicator::run, py::arg("inputs"), py::arg("outputs"))
      .def("start", &Communicator::start, py::arg("inputs"), py::arg("outputs") = py::none())
      .def("wait", &Communicator::wait, py::arg("handle"), py::arg("outputs") = py::none())
      .def("finished", &Communicator::finished, py::arg("handle"))
      .def("is_open", &Communicator::is_open, py::arg("handle"))
      .def(
          "sync_state",
          [](Communicator& self, const Arrays& ins, const Arrays& outs, const py::kwargs& kwargs) {
            return self.sync(ins, outs, kwargs, false);
          },
          py::arg("inputs"), py::arg("outputs"))
      .def(
          "publish",
          [](Communicator& self, const Arrays& ins, const Arrays& outs, const py::kwargs& kwargs) {
            return self.sync(ins, outs, kwargs, true);
          },
          py::arg("inputs"), py::arg("outputs"))
      .def("attributes", &Communicator::attributes)
      .def("digest", &Communicator::digest, py::arg("tag") = "default")
      .def("revision", &Communicator::revision, py::arg("tag") = "default")
      .def("site_of", &Communicator::site_of, py::arg("id"))
      .def("tell_found", &Communicator::tell_found, py::kw_only(), py::arg("tag"), py::arg("round"),
           py::arg("peer"), py::arg("differs"), py::arg("worst"), py::arg("policy"))
      .def("last_fault", &Communicator::last_fault, py::arg("tag") = "default")
      .def("faults_after", &Communicator::faults_after, py::arg("number"))
      .def("open_faults", &Communicator::open_faults)
      .def("new_mistake", &Communicator::new_mistake, py::arg("tag"))
      .def("waits", &Communicator::waits, py::call_guard<py::gil_scoped_release>())
      .def("waiting_for", &Communicator::waiting_for, py::call_guard<py::gil_scoped_release>())
      .def("timeline", &Communicator::timeline)
      .def("abort", &Communicator::abort, py::call_guard<py::gil_scoped_release>())
      .def("leave_on_term", &Communicator::leave_on_term, py::arg("leaves"))
      .def("record", &Communicator::record, py::arg("why"))
      .def("leave", &Communicator::leave)
      .def("close", &Communicator::close);
}

}  // namespace jccl::xla_ext
