#pragma once

#include <string>
#include <string_view>

namespace strake::integrations {

// HJSON as JSON. HJSON (hjson.github.io) is JSON with comments (#, // and /* */), commas that may be left out at the
// end of a line or stand before a closing bracket, keys without quotes, strings in single quotes, strings without
// quotes up to the end of their line, '''strings of several lines''', and no need for the braces around everything. It
// is read as hjson-py does, which DeepSpeed uses. A text that begins with '[' is an array, any other an object. Depth,
// UTF-8, escapes and duplicate keys are not checked: parse_json, which reads the result, does. Errors: kConfig with
// `source`, line and column.
std::string hjson_to_json(std::string_view text, const std::string& source);

// Where the first character is that is neither space nor in a comment, at or behind `position`: the size if there is
// none, the beginning of a comment that has no end.
size_t skip_hjson_blank(std::string_view text, size_t position);

}  // namespace strake::integrations
