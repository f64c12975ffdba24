#include "strake/core/json.h"

#include <cmath>
#include <vector>

#include "strake/core/file.h"

namespace strake {
namespace {

// Builds the tree while parsing: nlohmann's own DOM parser allows deep nesting and duplicate keys. The SAX parser is
// iterative, so depth cannot overflow the stack before it is refused.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    return std::isfinite(value) ? put(value) : refuse("number " + text + " is out of range");
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return refuse("binary value"); }
  bool start_object(size_t) override { return enter(Json::object()); }
  bool key(string_t& name) override {
    if (!take(kKeyBytes)) return false;
    const auto [member, is_new] = open_.back()->emplace(std::move(name), nullptr);
    member_ = &*member;
    return is_new || refuse("key '" + printable(member.key()) + "' occurs twice in one object");
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(Json::array()); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    return refuse(fmt::format("not valid JSON at byte {}: {}", position, printable(error.what(), 160)));
  }

  Json tree() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

 private:
  static constexpr size_t kMaxDepth = 64;
  // What values take beside their text, which a file's size bounds: "{}," takes 30 times its length.
  static constexpr int64_t kMaxBytes = int64_t{1} << 30;
  static constexpr int64_t kValueBytes = 16;
  static constexpr int64_t kContainerBytes = 64;
  static constexpr int64_t kKeyBytes = 80;

  // Where the next value of the innermost open array or object belongs.
  Json& place(Json&& value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return *member_ = std::move(value);
    return open_.back()->emplace_back(std::move(value));
  }
  bool put(Json value) {
    place(std::move(value));
    return take(kValueBytes);
  }
  bool take(int64_t bytes) {
    bytes_ += bytes;
    return bytes_ <= kMaxBytes || refuse(fmt::format("its values take more than {} MiB of memory", kMaxBytes >> 20));
  }
  bool enter(Json container) {
    if (open_.size() == kMaxDepth) return refuse(fmt::format("nested deeper than {} levels", kMaxDepth));
    open_.push_back(&place(std::move(container)));
    return take(kContainerBytes);
  }
  bool leave() {
    open_.pop_back();
    return true;
  }
  bool refuse(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  Json root_;
  std::vector<Json*> open_;  // arrays and objects around the next value; an array grows only while it is the innermost
  Json* member_ = nullptr;   // value of the last key
  std::string problem_;
  int64_t bytes_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  TreeBuilder builder;
  const bool sound = Json::sax_parse(text, &builder);
  require(sound, ErrorKind::kConfig, "{}: {}", source, builder.problem());
  return builder.tree();
}

Json read_json(const std::filesystem::path& path, uint64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace strake
