#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace strake {

// All of `text` as a decimal number, or nothing: also for "", "+1", " 1" and what does not fit into T.
template <std::integral T>
std::optional<T> parse_integer(std::string_view text) {
  T value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && rest == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace strake
