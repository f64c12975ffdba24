#include "strake/training/checkpoint_weights.h"

#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/models/weights.h"
#include "strake/tensors/checkpoint_files.h"

namespace strake::training {

std::vector<std::string> load_checkpoint(const CheckpointWeights& from, training::ShardedParameters& parameters,
                                         const BlockUse& use) {
  const tensors::CheckpointFiles files(from.folder);
  std::vector<std::string> initialized;
  for (size_t i = 0; i < from.model.blocks().size(); ++i) {
    const models::Block& block = *from.model.blocks()[i];
    at::Tensor whole = at::zeros({block.layout().numel()});
    try {
      models::load_block(block,
                         {.model = from.model,
                          .files = files,
                          .seed = from.seed,
                          .ignores_mismatched_sizes = from.ignores_mismatched_sizes},
                         whole, initialized);
    } catch (Error& error) {
      error.add_context("while loading " + from.folder.string());
      throw;
    }
    if (use) use(whole);
    parameters.assign(i, whole);
  }
  const auto unused = models::unused_names(from.model, files);
  if (!unused.empty()) log::info("not used from the checkpoint: {}", fmt::join(unused, ", "));
  return initialized;
}

}  // namespace strake::training
