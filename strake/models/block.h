#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strake/core/philox.h"
#include "strake/kernels/dropout.h"
#include "strake/kernels/packed_weights.h"
#include "strake/kernels/store.h"
#include "strake/models/planned_graph.h"
#include "strake/models/trained.h"
#include "strake/tensors/flat_layout.h"
#include "strake/tensors/packed_batch.h"

namespace strake::models {

enum class Initialization { kNormal, kZeros, kOnes };
enum class WeightDecay { kApply, kExempt };  // Hugging Face's Trainer exempts biases and normalisation weights

// How a checkpoint stores a matrix [outputs, inputs]; GPT-2's are [inputs, outputs].
enum class StoredAs { kIs, kTransposed };

// One named tensor of a block.
struct ParameterSpec {
  std::string name;  // unique within the model, for example "layer.3.attention.qkv.weight"
  std::vector<int64_t> shape;
  Initialization initialization = Initialization::kNormal;
  WeightDecay decay = WeightDecay::kApply;
  std::vector<std::string> checkpoint_names;  // Hugging Face's; several are stacked along dimension 0, in equal parts
  StoredAs stored_as = StoredAs::kIs;
  // Where tied weights may be found a second time. There they must be the same, or alone; they are not written twice.
  std::string checkpoint_copy = {};
  double initial_scale = 1;  // of normal initial values, times the model's initializer_range
  bool is_head = false;      // may be absent from a base checkpoint, and is initialised then
  Trained trained = Trained::kYes;
};

// Where a projection's or norm's two parameters are in Parameters.
struct Affine {
  size_t weight = 0;
  size_t bias = 0;
};

// A parameter of an earlier block that a block uses too (tied weights). It is stored and updated there.
struct TiedParameter {
  size_t block = 0;      // in the model
  size_t parameter = 0;  // in Block::parameters()
  Trained trained = Trained::kYes;
};

// Receives the gradients that layers compute in backward, once per trained parameter, use and micro-batch.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // `parameter` is the index in Block::parameters(). `gradient` has the parameter's shape, in fp32 or its dtype.
  virtual void accept(size_t parameter, const at::Tensor& gradient) = 0;
  // For layers that compute a gradient in place: fp32, of the parameter's shape. The complete gradient of this use goes
  // over what is there or onto it.
  struct Target {
    at::Tensor gradient;
    kernels::Store store = kernels::Store::kOverwrite;
  };
  virtual Target target(size_t parameter) = 0;
  // For gradients that touch few rows: an fp32 tensor of the parameter's shape [rows, columns] to which the layer adds
  // in place, in these rows alone; in any row if they are absent.
  using Rows = std::optional<std::span<const int32_t>>;
  virtual at::Tensor add_target(size_t parameter, const Rows& rows) = 0;
};

struct Parameter {
  at::Tensor value;  // fp32, bf16 or fp16, a view of the block's flat buffer
  size_t index = 0;
  GradientSink* sink = nullptr;  // null for a frozen parameter and in evaluation: no gradient is computed for it
  kernels::SharedPack pack = {};
};

// The values of one block's parameters for one forward or backward pass: those of Block::parameters(), then those of
// Block::tied().
using Parameters = std::vector<Parameter>;

// What a block may use besides its parameters and input.
struct StepContext {
  const tensors::PackedBatch& batch;
  std::optional<PhiloxKey> dropout_key;  // of (seed, optimizer step); absent in evaluation
  double loss_divisor = 1;               // that Model::loss gets: for a last block that takes its gradient at once

  // Dropout with probability p at one place of the network; off in evaluation.
  kernels::Dropout dropout(uint32_t site, double p) const;
};

// A piece of a model: stateless, knows nothing of ranks, optimizers or files. The engine decides when its parameters
// are there and when its gradient is taken (block-local autograd: the graph never crosses a block's border).
class Block {
 public:
  explicit Block(std::string name) : name_(std::move(name)) {}
  virtual ~Block() = default;

  const std::string& name() const { return name_; }
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  const std::vector<TiedParameter>& tied() const { return tied_; }
  // Where each parameter lies in the block's flat buffer.
  const tensors::FlatLayout& layout() const { return layout_; }
  // True if any parameter of its own is trained.
  bool is_trained() const;
  // Takes a parameter, its own or the tied one of that place, out of training. Model::freeze does it for all uses.
  void freeze(size_t parameter) { parameters_[parameter].trained = Trained::kNo; }
  void freeze_tied(size_t place) { tied_[place].trained = Trained::kNo; }

  // The first block ignores `input`; the last one returns what Model::loss takes. Hidden states are [T, hidden_size] in
  // the dtype of the parameters; the last block may get those of fewer tokens.
  virtual at::Tensor forward(const Parameters& parameters, const at::Tensor& input,
                             const StepContext& context) const = 0;
  // The memory of forward() in training, and of its backward pass: the same steps on planned tensors.
  virtual PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const = 0;

  // Windows of `flat` (of layout().numel() elements) as this block's own parameters.
  Parameters view(const at::Tensor& flat, GradientSink* sink) const;

 protected:
  // Declares a parameter; the returned index is its place in Parameters.
  size_t add(ParameterSpec spec);
  // Weight and bias of a layer norm, `name`.weight and `checkpoint_name`.weight and so on.
  Affine add_norm(const std::string& name, const std::string& checkpoint_name, int64_t width);
  // What is trained of a projection or norm.
  TrainedAffine trained(const Affine& affine) const {
    return {parameters_[affine.weight].trained, parameters_[affine.bias].trained};
  }
  // Declares the use of an earlier block's parameter. Its place in Parameters is parameters().size() + the returned
  // index, once all own parameters are declared.
  size_t tie(TiedParameter parameter);

 private:
  std::string name_;
  std::vector<ParameterSpec> parameters_;
  std::vector<TiedParameter> tied_;
  tensors::FlatLayout layout_;
};

}  // namespace strake::models
