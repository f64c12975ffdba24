#include "strake/training/freezing.h"

#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "strake/core/error.h"
#include "strake/core/nearest_name.h"
#include "strake/monitor/number_text.h"

namespace strake::training {
namespace {

struct Patterns {
  const char* flag;
  std::vector<std::string> patterns;
};

Patterns parse(const char* flag, const std::string& text) {
  Patterns result{.flag = flag, .patterns = {}};
  std::istringstream stream(text);
  for (std::string pattern; std::getline(stream, pattern, ',');) result.patterns.push_back(pattern);
  require(!text.ends_with(',') && std::ranges::none_of(result.patterns, &std::string::empty), ErrorKind::kUsage,
          "--{} {}: a pattern is empty", flag, printable(text));
  return result;
}

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

void for_each_parameter(const models::Model& model,
                        const std::function<void(size_t block, size_t parameter, const models::ParameterSpec&)>& use) {
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    const auto& specs = model.blocks()[i]->parameters();
    for (size_t p = 0; p < specs.size(); ++p) use(i, p, specs[p]);
  }
}

std::vector<std::string> all_names(const models::Model& model) {
  std::vector<std::string> names;
  for_each_parameter(model, [&](size_t, size_t, const models::ParameterSpec& spec) {
    names.insert(names.end(), spec.checkpoint_names.begin(), spec.checkpoint_names.end());
    if (!spec.checkpoint_copy.empty()) names.push_back(spec.checkpoint_copy);
  });
  return names;
}

// The name most like the pattern, or the first ones with the longest beginning that it shares with any.
std::vector<std::string> nearest_names(const std::string& pattern, const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  const std::string nearest = nearest_name(pattern, names);
  if (!nearest.empty()) return {nearest};
  for (std::string beginning = pattern.substr(0, pattern.find_first_of("*?["));; beginning.pop_back()) {
    std::vector<std::string> found;
    for (const std::string& name : names) {
      if (name.starts_with(beginning) && found.size() < kMost) found.push_back(name);
    }
    if (!found.empty() || beginning.empty()) return found;
  }
}

void require_matches(const Patterns& patterns, const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns.patterns) {
    const bool found = std::ranges::any_of(names, [&](const std::string& name) { return matches(pattern, name); });
    if (found) continue;
    fail(ErrorKind::kUsage, "--{}: '{}' matches no parameter of the model; near it are {}", patterns.flag,
         printable(pattern), fmt::join(nearest_names(pattern, names), ", "));
  }
}

// Whether the patterns choose the parameter.
bool is_chosen(const Patterns& patterns, const models::ParameterSpec& spec) {
  const auto by_any = [&](const std::string& name) {
    return std::ranges::any_of(patterns.patterns, [&](const std::string& pattern) { return matches(pattern, name); });
  };
  if (!spec.checkpoint_copy.empty() && by_any(spec.checkpoint_copy)) return true;
  const auto chosen = std::ranges::count_if(spec.checkpoint_names, by_any);
  require(chosen == 0 || chosen == std::ssize(spec.checkpoint_names), ErrorKind::kUsage,
          "--{} {}: these are kept in one tensor and can only be frozen or trained together: {}", patterns.flag,
          printable(fmt::format("{}", fmt::join(patterns.patterns, ","))), fmt::join(spec.checkpoint_names, ", "));
  return chosen > 0;
}

}  // namespace

void freeze_parameters(models::Model& model, const FreezeRules& rules) {
  if (rules.freeze.empty() && rules.train_only.empty()) return;
  const bool chosen_are_frozen = !rules.freeze.empty();
  const Patterns patterns = chosen_are_frozen ? parse("freeze", rules.freeze) : parse("train_only", rules.train_only);
  require_matches(patterns, all_names(model));
  for_each_parameter(model, [&](size_t block, size_t parameter, const models::ParameterSpec& spec) {
    if (is_chosen(patterns, spec) == chosen_are_frozen) model.freeze(block, parameter);
  });
  require(model.num_trained_parameters() > 0, ErrorKind::kUsage, "--freeze {} leaves nothing to train",
          printable(rules.freeze));
}

void freeze_all(models::Model& model) {
  for_each_parameter(model, [&](size_t block, size_t parameter, const auto&) { model.freeze(block, parameter); });
}

std::vector<std::string> frozen_names(const models::Model& model) {
  std::vector<std::string> names;
  for_each_parameter(model, [&](size_t, size_t, const models::ParameterSpec& spec) {
    if (spec.trained == models::Trained::kYes) return;
    names.insert(names.end(), spec.checkpoint_names.begin(), spec.checkpoint_names.end());
  });
  return names;
}

std::string describe_trainable(const models::Model& model) {
  const int64_t trained = model.num_trained_parameters();
  const int64_t all = model.num_parameters();
  return fmt::format("trainable params: {} || all params: {} || trainable%: {:.4f}", monitor::count_text(trained),
                     monitor::count_text(all), 100 * static_cast<double>(trained) / static_cast<double>(all));
}

}  // namespace strake::training
