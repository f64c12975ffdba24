#pragma once

#include "strake/models/encoder/family.h"

namespace strake::models {

// DistilBERT (Sanh et al. 2019): no token types, no dropout after the attention's output projection, ReLU head.
EncoderFamily distilbert_family();

}  // namespace strake::models
