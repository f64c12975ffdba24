#include "strake/models/forward.h"

#include <c10/core/GradMode.h>

namespace strake::models {

at::Tensor forward(const Model& model, ParameterSource& parameters, const tensors::PackedBatch& batch) {
  const c10::AutoGradMode no_graph(false);
  const StepContext context{batch, std::nullopt};
  at::Tensor activations;
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    activations = model.blocks()[i]->forward(parameters.acquire(i), activations, context);
    parameters.release(i);
  }
  return activations;
}

}  // namespace strake::models
