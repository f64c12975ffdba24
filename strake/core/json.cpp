#include "strake/core/json.h"

#include <cmath>
#include <unordered_set>
#include <vector>

#include "strake/core/file.h"

namespace strake {
namespace {

// Refuses deep nesting and duplicate keys before any tree is built: nlohmann's DOM parser allows both. The SAX parser
// itself is iterative, so depth cannot overflow the stack here.
class HostileJsonCheck : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t value, const string_t& text) override {
    return std::isfinite(value) || refuse("number " + text + " is out of range");
  }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return enter();
  }
  bool key(string_t& name) override {
    return keys_.back().insert(name).second || refuse("key '" + printable(name) + "' occurs twice in one object");
  }
  bool end_object() override {
    keys_.pop_back();
    return leave();
  }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    return refuse(fmt::format("not valid JSON at byte {}: {}", position, printable(error.what(), 160)));
  }

  const std::string& problem() const { return problem_; }

 private:
  static constexpr int kMaxDepth = 64;

  bool enter() { return ++depth_ <= kMaxDepth || refuse(fmt::format("nested deeper than {} levels", kMaxDepth)); }
  bool leave() {
    --depth_;
    return true;
  }
  bool refuse(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  int depth_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;
  std::string problem_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  HostileJsonCheck check;
  const bool sound = Json::sax_parse(text, &check);
  require(sound, ErrorKind::kConfig, "{}: {}", source, check.problem());
  return Json::parse(text);
}

Json read_json(const std::filesystem::path& path, uint64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

}  // namespace strake
