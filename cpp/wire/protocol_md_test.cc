// PROTOCOL.md against the code: the tables of all messages and records, field by field with their
// bounds, and the frozen bytes of this version.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "wire/fields.h"
#include "wire/samples.h"

namespace jccl::wire {
namespace {

// A third direction of fields.h: names the type of each field, lists opened up.
class FieldNamer {
 public:
  template <typename T>
  using Ref = const T&;
  static constexpr bool kDecodes = false;

  void u8(std::uint8_t) { add("u8"); }
  void u16(std::uint16_t) { add("u16"); }
  void u32(std::uint32_t) { add("u32"); }
  void u64(std::uint64_t) { add("u64"); }
  void i64(std::int64_t) { add("i64"); }
  void flag(bool) { add("flag"); }
  void attempt(const Attempt&) { add("attempt"); }
  void digest(const Digest&) { add("digest"); }
  void run(const RunId&) { add("run"); }
  template <std::size_t N>
  void raw(const std::array<std::uint8_t, N>&) {
    add(base::cat("raw ", N));
  }
  void weight(double) { add("weight"); }
  void tag(const Tag&) { add("tag"); }
  void name(const std::string&, std::size_t max, std::string_view) { add(base::cat("name ", max)); }
  void text(const std::string&, std::size_t max) { add(base::cat("text ", max)); }
  void blob(const Bytes&, std::size_t max, std::string_view) { add(base::cat("blob ", max)); }
  void payload(const Bytes& v, std::size_t max, std::string_view what) { blob(v, max, what); }
  void one_of(Code, bool (*)(std::uint8_t)) { add("code"); }
  void one_of(Verdict, bool (*)(std::uint8_t)) { add("verdict"); }
  void one_of(SyncVerdict, bool (*)(std::uint8_t)) { add("sync verdict"); }
  void one_of(Wish, bool (*)(std::uint8_t)) { add("wish"); }
  void one_of(ViolationKind, bool (*)(std::uint8_t)) { add("violation"); }
  void one_of(FindingPolicy, bool (*)(std::uint8_t)) { add("policy"); }
  void one_of(OrderVerb, bool (*)(std::uint8_t)) { add("order verb"); }
  template <typename T, typename Each>
  void list(const std::vector<T>&, std::size_t max, std::string_view, Each each) {
    add(base::cat("list ", max, " of ("));
    const T item{};
    each(item);
    add(")");
  }
  void require(bool, std::string_view) {}
  void contributors(const std::vector<Contributor>&) { add("contributors"); }

  const std::string& types() const { return types_; }

 private:
  void add(const std::string& type) { types_ += type + "; "; }
  std::string types_;
};

template <typename T>
std::string types_of() {
  FieldNamer io;
  fields(io, T{});
  return io.types();
}

using Sections = std::map<std::string, std::vector<std::string>>;  // heading → types of its rows

std::filesystem::path root() { return std::filesystem::path(JCCL_TEST_DATA) / ".." / ".."; }

Sections read_sections() {
  std::ifstream file(root() / "cpp" / "wire" / "PROTOCOL.md");
  EXPECT_TRUE(file.good());
  Sections sections;
  std::string heading;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) heading = line.starts_with("### ") ? line.substr(4) : "";
    if (heading.empty()) continue;
    std::vector<std::string>& types = sections[heading];
    const std::size_t open = line.find("| `");
    if (!line.starts_with("|") || open == std::string::npos) continue;
    types.push_back(line.substr(open + 3, line.find('`', open + 3) - open - 3));
  }
  return sections;
}

// A documented type in primitives, parts replaced by their own rows.
std::string expanded(const Sections& sections, const std::string& type) {
  const std::size_t of = type.find(" of ");
  if (type.starts_with("list ") && of != std::string::npos) {
    return type.substr(0, of) + " of (; " + expanded(sections, type.substr(of + 4)) + "); ";
  }
  const auto part = sections.find("`" + type + "`");
  if (part == sections.end()) return type + "; ";
  std::string text;
  for (const std::string& field : part->second) text += expanded(sections, field);
  return text;
}

std::map<std::string, std::string> coded() {
  return {
#define X(name, number) {#name " = " #number, types_of<name>()},
      JCCL_MESSAGES(X) JCCL_RECORDS(X)
#undef X
  };
}

TEST(ProtocolMdTest, it_lists_every_message_and_record_with_its_number_and_fields) {
  const Sections sections = read_sections();
  std::size_t documented = 0;
  for (const auto& [heading, types] : sections) documented += !heading.starts_with("`");
  EXPECT_EQ(documented, coded().size());
  for (const auto& [heading, types] : coded()) {
    const auto section = sections.find(heading);
    ASSERT_NE(section, sections.end()) << heading << " is not in PROTOCOL.md";
    std::string text;
    for (const std::string& type : section->second) text += expanded(sections, type);
    EXPECT_EQ(text, types) << heading;
  }
}

TEST(ProtocolMdTest, sizes_and_numbers_in_the_text_are_those_of_the_code) {
  std::ifstream file(root() / "cpp" / "wire" / "PROTOCOL.md");
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string text = stream.str();
  for (const std::string& phrase :
       {base::cat("# The wire, version ", kVersion), base::cat("| Hello | ", base::kHelloBytesMax),
        base::cat("| any other to the master | ", base::kControlBytesMax),
        base::cat("fits) | ", base::kRosterBytesMax), base::cat("n ≤ ", base::kTagBytesMax),
        base::cat("link hello, ", kLinkHelloBytes, " bytes"),
        base::cat("header, ", kFrameHeaderBytes, " bytes"),
        base::cat("| version | `u16` | ", LinkHello{}.version, " |"),
        base::cat("| version | `u16` + 2 zero bytes | ", LinkHello{}.version, " |"),
        base::cat("stripes ≤ ", base::kStripesMax), base::cat("≤ ", kFramePayloadBytesMax, ";"),
        base::cat("wire_v", kVersion, "_*.hex")}) {
    EXPECT_NE(text.find(phrase), std::string::npos) << phrase;
  }
}

// ---- golden bytes ------------------------------------------------------------------------------

std::string hex_of(const Bytes& bytes) {
  std::ostringstream out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    out << kDigits[bytes[i] >> 4] << kDigits[bytes[i] & 15] << (i % 32 == 31 ? "\n" : "");
  }
  out << (bytes.size() % 32 == 0 ? "" : "\n");
  return out.str();
}

std::map<std::string, Bytes> frozen() {
  std::map<std::string, Bytes> all;
  for (const Message& m : sample_messages()) all[std::string(name_of(m))] = encode(m);
  for (const Record& r : sample_records()) all[std::string(name_of(r))] = encode_record(r);
  all["LinkHello"] = encode(sample_link_hello());
  all["SnapshotAsk"] = encode(sample_ask());
  all["ProofAsk"] = encode(sample_proof_ask());
  all["FrameHeader"].resize(kFrameHeaderBytes);
  encode(sample_frame_header(), all["FrameHeader"].data());
  return all;
}

// JCCL_REWRITE=1 writes the files anew: for a new version, or before the first release.
TEST(GoldenTest, the_bytes_of_this_version_are_frozen) {
  const std::string prefix = base::cat("wire_v", kVersion, "_");
  const char* rewrite = std::getenv("JCCL_REWRITE");
  const std::filesystem::path folder(JCCL_TEST_DATA);
  std::size_t files = 0;
  for (const auto& [name, bytes] : frozen()) {
    const std::filesystem::path path = folder / (prefix + name + ".hex");
    if (rewrite != nullptr && *rewrite == '1') std::ofstream(path) << hex_of(bytes);
    std::ifstream file(path);
    ASSERT_TRUE(file.good()) << path << " is missing; JCCL_REWRITE=1 writes it";
    std::stringstream stream;
    stream << file.rdbuf();
    EXPECT_EQ(stream.str(), hex_of(bytes))
        << name << ": the bytes changed; raise kVersion and update PROTOCOL.md";
    ++files;
  }
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    found += entry.path().filename().string().starts_with(prefix);
  }
  EXPECT_EQ(found, files) << "a golden file belongs to nothing";
}

}  // namespace
}  // namespace jccl::wire
