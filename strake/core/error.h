#pragma once

#include <fmt/format.h>

#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

namespace strake {

// What went wrong, from the user's point of view. Each kind has its process exit code.
enum class ErrorKind {
  kUsage,       // 2: unknown or contradictory flags
  kConfig,      // 2: a configuration or model file asks for something impossible
  kData,        // 3: training or scoring data is not what it should be
  kIo,          // 4: file or network
  kComm,        // 5: communication between ranks
  kNumeric,     // 6: NaN or infinity where a number was needed
  kInternal,    // 70: our own mistake
  kInterrupted  // 75: asked to end before the work was done, which can go on from where it was saved
};

int exit_code(ErrorKind kind);
const char* to_string(ErrorKind kind);

// What a program that ends with it says: "strake: KIND error: TEXT" and the end of the line, to be written at once, as
// ranks share a terminal.
std::string error_line(ErrorKind kind, std::string_view text);

// The one exception of strake. what() is "message (context; outer context)"; location is where it was thrown.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message, std::source_location where = std::source_location::current());

  ErrorKind kind() const { return kind_; }
  const std::source_location& where() const { return where_; }
  const char* what() const noexcept override { return text_.c_str(); }

  // Outer layers say what they were doing: "while loading shard 3 of 8".
  Error& add_context(const std::string& context);

 private:
  ErrorKind kind_;
  std::string text_;
  std::source_location where_;
};

// A format string checked at compile time, together with the caller's location.
template <typename... Args>
struct Located {
  template <typename S>
  consteval Located(const S& s, std::source_location w = std::source_location::current()) : text(s), where(w) {}
  fmt::format_string<Args...> text;
  std::source_location where;
};

// Throws Error(kind) with the formatted message unless `ok`.
template <typename... Args>
void require(bool ok, ErrorKind kind, Located<std::type_identity_t<Args>...> message, Args&&... args) {
  if (!ok) throw Error(kind, fmt::format(message.text, std::forward<Args>(args)...), message.where);
}

// Throws Error(kind) with the formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, Located<std::type_identity_t<Args>...> message, Args&&... args) {
  throw Error(kind, fmt::format(message.text, std::forward<Args>(args)...), message.where);
}

// `text` with control characters and bytes that are no UTF-8 written as \xNN, and cut to `max_bytes`: for quoting data
// in messages without letting it drive the terminal.
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace strake
