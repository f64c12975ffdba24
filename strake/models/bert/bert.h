#pragma once

#include "strake/models/encoder/family.h"

namespace strake::models {

// Names of BERT, and of families that took over its code, under their own prefix.
EncoderNames bert_names(const char* prefix);

// Of BertConfig().
Json bert_defaults();

// BERT (Devlin et al. 2018): the pooler is part of the base checkpoint; only the classifier is new.
EncoderFamily bert_family();

}  // namespace strake::models
