#pragma once

#include "strake/models/encoder/family.h"

namespace strake::models {

// RoBERTa (Liu et al. 2019): BERT with positions counted from the padding id and a two-layer head of its own.
EncoderFamily roberta_family();

}  // namespace strake::models
