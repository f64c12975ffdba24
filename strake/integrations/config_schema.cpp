#include "strake/integrations/config_schema.h"

#include <algorithm>
#include <map>

#include "strake/core/nearest_name.h"
#include "strake/integrations/config_value.h"

namespace strake::integrations {
namespace {

std::string join(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

std::string_view parent_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view leaf_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

// Keys that begin with '_' stand for the comments that JSON does not have, and for what is to be left out for a while.
// Takes them out, at every level, and gives their paths.
std::vector<std::string> take_comments(Json& root) {
  std::vector<std::string> taken;
  std::vector<std::pair<Json*, std::string>> open{{&root, ""}};  // the depth of a file is its author's choice
  while (!open.empty()) {
    const auto [object, path] = std::move(open.back());
    open.pop_back();
    for (auto item = object->begin(); item != object->end();) {
      std::string inner = join(path, item.key());
      if (item.key().starts_with('_')) {
        taken.push_back(std::move(inner));
        item = object->erase(item);
        continue;
      }
      if (item->is_object()) open.emplace_back(&*item, std::move(inner));
      ++item;
    }
  }
  return taken;
}

std::string list_comments(std::span<const std::string> paths) {
  constexpr size_t kMostListed = 20;
  std::vector<std::string> names;
  for (const std::string& path : paths.first(std::min(paths.size(), kMostListed))) names.push_back(printable(path));
  return fmt::format("taken as comments: {}{}", fmt::join(names, ", "),
                     paths.size() > kMostListed ? fmt::format(" and {} more", paths.size() - kMostListed) : "");
}

class Checker {
 public:
  Checker(const Schema& schema, const std::string& source) : schema_(schema) { result_.source = source; }

  // `written` is the section's path as the file has it, `canonical` as the table has it.
  // Recursion ends with the table: an unknown section is not entered.
  void check_section(const Json& object, const std::string& written, const std::string& canonical) {
    for (const auto& [key, value] : object.items()) {
      if (problems_.size() >= kMostProblems) return;
      if (key.find('.') != std::string::npos) {
        problem(join(written, key), "unknown; levels are nested objects, not dots");
        continue;
      }
      check_key(join(written, key), join(canonical, key), value);
    }
  }

  CheckedValues finish() {
    require_no_problems(problems_, result_.source);
    return std::move(result_);
  }

 private:
  static constexpr size_t kMostProblems = 1000;  // a hostile file's keys are not all worth a search for near names
  static constexpr size_t kLongestName = 100;

  void problem(const std::string& written, std::string_view text) {
    problems_.push_back(fmt::format("key '{}': {}", printable(written), text));
  }

  void notice(std::string text) {
    if (std::ranges::find(result_.notices, text) == result_.notices.end()) result_.notices.push_back(std::move(text));
  }

  void check_key(const std::string& written, std::string canonical, const Json& value) {
    for (const KeyAlias& alias : schema_.aliases) {
      if (alias.path != canonical) continue;
      canonical = alias.canonical;
      if (!alias.note.empty()) notice(fmt::format("{}: {}", written, alias.note));
      break;
    }
    const KeyRule* rule = schema_.find(canonical);
    if (rule == nullptr) return unknown(written, canonical);
    const auto [first, is_new] = seen_.emplace(canonical, written);
    if (!is_new)
      return problem(written, fmt::format("the same key as '{}', which is also there", printable(first->second)));
    if (value == "auto" && rule->type != ValueType::kSection && check_auto(*rule, canonical)) return;
    if (rule->status == KeyStatus::kRefused && rule->type == ValueType::kSection) {
      if (!value.is_null()) problem(written, rule->reason);
    } else if (rule->type == ValueType::kSection && value.is_object()) {
      check_section(value, written, canonical);
    } else {
      check_leaf(*rule, written, value);
    }
  }

  // True if "auto" is all there is to say about the key.
  bool check_auto(const KeyRule& rule, const std::string& canonical) {
    switch (auto_meaning(rule)) {
      case AutoMeaning::kFromFlags:
        result_.values[canonical] = "auto";
        return true;
      case AutoMeaning::kDefault:
        result_.autos.insert(canonical);
        return true;
      default:
        return false;
    }
  }

  AutoMeaning auto_meaning(const KeyRule& rule) const {
    const KeyRule* owner = &rule;
    while (owner != nullptr && owner->auto_meaning == AutoMeaning::kAsSection)
      owner = schema_.find(parent_of(owner->path));
    return owner == nullptr ? AutoMeaning::kError : owner->auto_meaning;
  }

  void check_leaf(const KeyRule& rule, const std::string& written, const Json& value) {
    auto checked = check_value(rule, value);
    if (const auto* wrong = std::get_if<ValueProblem>(&checked)) return problem(written, wrong->text);
    Json& good = std::get<Json>(checked);
    if (good.is_null()) return;
    const bool set = is_set(rule, good);
    if (set && rule.status == KeyStatus::kRefused) return problem(written, rule.reason);
    if (set && rule.status == KeyStatus::kNoticed) notice(fmt::format("{}: {}", rule.path, rule.reason));
    result_.values[std::string(rule.path)] = std::move(good);
  }

  void unknown(const std::string& written, const std::string& canonical) {
    for (const KeyHint& hint : schema_.hints)
      if (hint.path == canonical) return problem(written, fmt::format("unknown; {}", hint.hint));
    const std::string_view leaf = leaf_of(canonical);
    std::vector<std::string> elsewhere;
    std::vector<std::string> siblings;
    const auto look_at = [&](std::string_view path) {
      if (leaf_of(path) == leaf) elsewhere.push_back(fmt::format("'{}'", path));
      if (parent_of(path) == parent_of(canonical)) siblings.emplace_back(leaf_of(path));
    };
    for (const KeyRule& rule : schema_.rules) look_at(rule.path);
    for (const KeyAlias& alias : schema_.aliases) look_at(alias.path);
    constexpr size_t kMostPlaces = 3;
    if (!elsewhere.empty() && elsewhere.size() <= kMostPlaces)
      return problem(written, fmt::format("unknown here; it belongs at {}", fmt::join(elsewhere, " or ")));
    problem(written, fmt::format("unknown{}", leaf.size() > kLongestName ? "" : did_you_mean(leaf, siblings)));
  }

  const Schema& schema_;
  CheckedValues result_;
  std::map<std::string, std::string> seen_;  // as written, by canonical name
  std::vector<std::string> problems_;
};

}  // namespace

const KeyRule* Schema::find(std::string_view path) const {
  const auto found = std::ranges::find(rules, path, &KeyRule::path);
  return found == rules.end() ? nullptr : &*found;
}

bool CheckedValues::is_auto(const std::string& path) const {
  const auto found = values.find(path);
  return found != values.end() && found->second == "auto";
}

CheckedValues check_values(const Json& root, const Schema& schema, const std::string& source) {
  Json settings = root;
  const std::vector<std::string> comments = take_comments(settings);
  Checker checker(schema, source);
  checker.check_section(settings, "", "");
  CheckedValues values = checker.finish();
  if (!comments.empty()) values.notices.push_back(list_comments(comments));
  return values;
}

void require_no_problems(std::span<const std::string> problems, const std::string& source) {
  if (problems.empty()) return;
  if (problems.size() == 1) fail(ErrorKind::kConfig, "{}: {}", source, problems.front());
  constexpr size_t kMostListed = 40;
  const auto listed = problems.first(std::min(problems.size(), kMostListed));
  fail(ErrorKind::kConfig, "{}: {} problems{}\n- {}", source, problems.size(),
       listed.size() < problems.size() ? fmt::format(", the first {}:", kMostListed) : ":", fmt::join(listed, "\n- "));
}

}  // namespace strake::integrations
