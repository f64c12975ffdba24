#pragma once

#include "strake/models/encoder/family.h"

namespace strake::models {

// BERT (Devlin et al. 2018): the pooler is part of the base checkpoint; only the classifier is new.
EncoderFamily bert_family();

}  // namespace strake::models
