#include "strake/tasks/checkpoint_weights.h"

#include <ATen/ops/zeros.h>

#include "strake/core/error.h"
#include "strake/tensors/checkpoint_files.h"

namespace strake::tasks {

models::LoadReport load_checkpoint(const CheckpointWeights& from, training::ShardedParameters& parameters,
                                   const BlockUse& use) {
  const tensors::CheckpointFiles files(from.folder);
  models::LoadReport report;
  for (size_t i = 0; i < from.model.blocks().size(); ++i) {
    const models::Block& block = *from.model.blocks()[i];
    at::Tensor whole = at::zeros({block.layout().numel()});
    try {
      models::load_block(block,
                         {.model = from.model,
                          .files = files,
                          .seed = from.seed,
                          .ignores_mismatched_sizes = from.ignores_mismatched_sizes},
                         whole, report);
    } catch (Error& error) {
      error.add_context("while loading " + from.folder.string());
      throw;
    }
    if (use) use(whole);
    parameters.assign(i, whole);
  }
  report.unused = models::unused_names(from.model, files);
  return report;
}

}  // namespace strake::tasks
