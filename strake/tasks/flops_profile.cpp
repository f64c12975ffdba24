#include "strake/tasks/flops_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <numeric>
#include <vector>

#include "strake/core/file.h"
#include "strake/monitor/number_text.h"

namespace strake::tasks {
namespace {

using monitor::scaled_text;

double total(const training::BlockFlops& flops) { return flops.forward + flops.backward; }

}  // namespace

std::string flops_profile(const models::Model& model, const training::StepReport& step,
                          const integrations::DsFlopsProfiler& options, training::Recomputation recomputation) {
  const std::vector<training::BlockFlops> blocks = training::block_flops(model, step.batch, recomputation);
  training::BlockFlops all;
  for (const training::BlockFlops& block : blocks) all.forward += block.forward, all.backward += block.backward;
  std::string text = fmt::format("***** flops profile of step {} *****\n", step.step);
  const auto put = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<24} = {:>12}\n", name, value);
  };
  put("sequences", monitor::count_text(step.batch.sequences));
  put("tokens", monitor::count_text(step.batch.tokens));
  put("parameters", scaled_text(static_cast<double>(model.num_parameters())));
  put("forward_flops", scaled_text(all.forward));
  put("backward_flops", scaled_text(all.backward));
  put("step_seconds", fmt::format("{:.3f}", step.seconds));
  put("samples_per_second", fmt::format("{:.1f}", static_cast<double>(step.batch.sequences) / step.seconds));
  put("flops_per_second", scaled_text(total(all) / step.seconds));
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return total(blocks[i]); });
  order.resize(std::min(order.size(), static_cast<size_t>(options.top_modules)));
  std::vector<std::string> top;
  for (const size_t i : order) top.push_back(model.blocks()[i]->name());
  put("most_flops", fmt::format("{}", fmt::join(top, ", ")));
  if (!options.detailed) return text;
  text += fmt::format("  {:<24} {:>12} {:>12} {:>12} {:>8}\n", "block", "parameters", "forward", "backward", "share");
  for (size_t i = 0; i < blocks.size(); ++i) {
    const models::Block& block = *model.blocks()[i];
    text += fmt::format("  {:<24} {:>12} {:>12} {:>12} {:>6.1f} %\n", block.name(),
                        scaled_text(static_cast<double>(block.layout().numel())), scaled_text(blocks[i].forward),
                        scaled_text(blocks[i].backward), 100 * total(blocks[i]) / total(all));
  }
  return text;
}

void write_flops_profile(const std::string& profile, const integrations::DsFlopsProfiler& options, std::ostream& out) {
  if (options.output_file.empty()) {
    out << profile << std::flush;
    return;
  }
  const std::filesystem::path path(options.output_file);
  if (path.has_parent_path()) strake::create_directories(path.parent_path());
  write_file_atomically(path, profile);
}

}  // namespace strake::tasks
