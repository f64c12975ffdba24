#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "strake/models/memory_meter.h"
#include "strake/models/trained.h"
#include "strake/tensors/packed_batch.h"

// Memory and arithmetic of a block's forward and backward pass without computing them. Every layer has a planned twin
// beside it, of the same name, that allocates what the layer does, saves what its node saves and lives as long; a
// block's plan() is its forward() with planned tensors. Memory is that of tensors: what libraries and kernels use
// inside is not in it.
namespace strake::models {

// What memory and arithmetic of a packed batch depend on.
struct BatchShape {
  int64_t tokens = 0;
  int64_t sequences = 0;
  double squared_lengths = 0;  // sum over sequences of length squared: for arithmetic only
  int64_t longest = 0;         // tokens of a sequence: for memory of GPUs only
  int64_t targets = 0;         // Model::num_targets of all sequences
  bool operator==(const BatchShape&) const = default;
};

// One input of one node of the graph, as an edge of autograd's: which output of which node a tensor is.
struct PlannedEdge {
  size_t node = 0;
  size_t output = 0;
};

// A matrix that has a size but no values. Copies share the memory, as those of at::Tensor do.
struct PlannedTensor {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t element_size = 0;
  std::shared_ptr<const void> memory;
  std::optional<PlannedEdge> origin;  // none: needs no gradient

  bool defined() const { return memory != nullptr; }
};

// Layers allocate more than their results in other ways on GPUs.
enum class PlannedDevice { kProcessor, kGpu };

enum class PlannedGradients { kTaken, kNone };

enum class PlannedDropout { kOn, kOff };  // off: an evaluation

// What matrix products do with operands of 16 bits: layers::linear_product widens fp16 to fp32.
enum class PlannedProducts { kDirect, kWidened };

// How gradients of parameters come into the flat buffer.
enum class PlannedFold { kOverwrite, kAdd };

class PlannedGraph {
 public:
  struct Options {
    BatchShape batch;
    int64_t element_size = 4;  // of parameters and hidden states
    PlannedGradients gradients = PlannedGradients::kTaken;
    PlannedFold fold = PlannedFold::kOverwrite;
    PlannedProducts products = PlannedProducts::kDirect;
    PlannedDropout dropout = PlannedDropout::kOn;
    PlannedDevice device = PlannedDevice::kProcessor;
  };
  PlannedGraph(MemoryMeter& meter, const Options& options) : meter_(meter), options_(options) {}

  int64_t element_size() const { return options_.element_size; }
  const BatchShape& batch() const { return options_.batch; }
  // Of the batch where it is computed with.
  int64_t tokens() const { return is_on_gpu() ? tensors::tokens_on_gpu(batch().tokens) : batch().tokens; }
  bool widens_products() const { return options_.products == PlannedProducts::kWidened; }
  bool is_on_gpu() const { return options_.device == PlannedDevice::kGpu; }
  bool drops_out() const { return options_.dropout == PlannedDropout::kOn; }
  bool takes_gradients() const { return options_.gradients == PlannedGradients::kTaken; }

  // A new tensor in the dtype of the parameters, or one of `element_size` bytes.
  PlannedTensor empty(int64_t rows, int64_t columns) { return empty(rows, columns, options_.element_size); }
  PlannedTensor empty(int64_t rows, int64_t columns, int64_t element_size);
  PlannedTensor empty_like(const PlannedTensor& x) { return empty(x.rows, x.columns, x.element_size); }
  // Memory that is there for a moment.
  void use(int64_t bytes) { meter_.lend(MemoryUse::kActivations, bytes); }
  // `x` as the beginning of the graph, whose gradient backward() returns.
  static PlannedTensor leaf(PlannedTensor x);

  // The gradients of a node's inputs from those of its outputs. What it takes out of `saved` is freed early.
  using Saved = std::vector<PlannedTensor>;
  using Backward = std::function<std::vector<PlannedTensor>(Saved& saved, const Saved& gradients)>;
  // Whether a layer with these inputs is part of the graph: one of them needs a gradient, or a parameter does.
  bool records(const std::vector<PlannedTensor>& inputs, Trained trained = Trained::kNo) const;
  // Makes a node the origin of a layer's outputs. Nothing is saved if the layer is no part of the graph.
  void attach(std::vector<PlannedTensor*> outputs, const std::vector<PlannedTensor>& inputs, Saved saved,
              Backward backward, Trained trained = Trained::kNo);

  // A layer hands the gradient of a parameter to its sink.
  void accept(const PlannedTensor& gradient);
  // Whether such gradients are added to what is there.
  bool adds_gradients() const { return options_.fold == PlannedFold::kAdd; }

  // Runs all nodes in autograd's order: the newest first. Undefined if the beginning of the graph needs no gradient.
  PlannedTensor backward(const PlannedTensor& output, const PlannedTensor& output_gradient);

  // A product of matrices [rows, inner] and [inner, columns], and arithmetic of other shapes.
  void multiply(int64_t rows, int64_t inner, int64_t columns) {
    compute(2 * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns));
  }
  void compute(double flops) { flops_ += flops; }
  // Floating-point operations of all products so far; a multiply-add is 2.
  double flops() const { return flops_; }

 private:
  struct Node {
    Saved saved;
    std::vector<std::optional<PlannedEdge>> inputs;
    Backward backward;
    std::vector<PlannedTensor> gradients;  // by output
  };
  void add_gradient(const PlannedEdge& edge, PlannedTensor gradient);

  MemoryMeter& meter_;
  Options options_;
  std::vector<Node> nodes_;
  PlannedTensor leaf_gradient_;
  double flops_ = 0;
};

}  // namespace strake::models
