#pragma once

#include <cstddef>
#include <string_view>

#include "strake/tokenizers/added_tokens.h"
#include "strake/tokenizers/spec.h"

namespace strake::tokenizers {

// Cuts long text into parts that give the same tokens one after the other as the whole text does, so that the working
// memory of a text of 50 MB is that of a part.
class TextCutter {
 public:
  static constexpr size_t kPartBytes = size_t{1} << 16;

  // Cuts nothing by default, nor where a tokenizer looks beyond white space.
  TextCutter() = default;
  TextCutter(const TokenizerSpec& spec, const AddedTokens& added);

  // Where the part ends that begins at `begin`, kPartBytes or more behind it unless the text ends. `text` holds no
  // added token of those that are found in raw text.
  size_t part_end(std::string_view text, size_t begin) const;

 private:
  bool can_cut_ = false;
  bool cuts_lines_ = false;  // before a line feed, too
};

}  // namespace strake::tokenizers
