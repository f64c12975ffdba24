#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "strake/core/json.h"
#include "strake/kernels/bias_activation.h"

// Values of a config.json, checked. Errors are kConfig and name `source` and the key.
namespace strake::models {

// The class of Transformers that it names; empty: none.
std::string architecture_of(const Json& json);

// An integer in [1, largest] that must be there.
int64_t bounded(const Json& json, const char* key, int64_t largest, const std::string& source);

// In [0, 1).
double probability(const Json& json, const char* key, double fallback, const std::string& source);

// A layer norm's epsilon, in (0, 1).
double norm_epsilon(const Json& json, const char* key, double fallback, const std::string& source);

// initializer_range, in [0, 100).
double initializer_range(const Json& json, const std::string& source);

kernels::Activation activation(const Json& json, const char* key, const std::string& fallback,
                               const std::string& source);

// For switches that strake does not compute: they may be there, but not be on.
void refuse_flag(const Json& json, const char* key, const std::string& source);

// What makes Transformers load something else than the weights as they are: the model's own Python code, which is never
// run, and quantization.
void refuse_other_loading(const Json& json, const std::string& source);

// Another name of a key, which Transformers prefers (its attribute_map).
struct MappedKey {
  const char* other;
  const char* key;
};
// Leaves the keys alone, with the values that the other names have.
void take_mapped_keys(Json& json, std::span<const MappedKey> keys);

}  // namespace strake::models
