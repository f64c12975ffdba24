#include "strake/monitor/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "strake/monitor/number_text.h"

namespace strake::monitor {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool can_redraw(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && std::string_view(terminal == nullptr ? "" : terminal) != "dumb";
}

size_t columns_of(int descriptor) {
  constexpr size_t kUsual = 80;
  struct winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

void write_ignoring_errors(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(descriptor, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    text.remove_prefix(static_cast<size_t>(put));
  }
}

double share_done(const ProgressNumbers& numbers) {
  return std::clamp(static_cast<double>(numbers.done) / static_cast<double>(numbers.total), 0.0, 1.0);
}

// Rounded down: 100% means done.
int64_t percent_done(const ProgressNumbers& numbers) {
  return 100 * std::clamp<int64_t>(numbers.done, 0, numbers.total) / numbers.total;
}

std::string bar(double share, size_t width) {
  const auto filled = static_cast<size_t>(share * static_cast<double>(width));
  std::string text(width, ' ');
  std::fill_n(text.begin(), filled, '=');
  if (filled < width) text[filled] = '>';
  return "[" + text + "]";
}

}  // namespace

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)), on_terminal_(can_redraw(options_.descriptor)) {
  if (!options_.clock) options_.clock = &steady_seconds;
  started_ = options_.clock();
  shown_at_ = on_terminal_ ? -std::numeric_limits<double>::infinity() : started_;
  step_rate_.record(started_, options_.done_at_start);
  token_rate_.record(started_, 0);
}

Progress::~Progress() {
  if (bar_is_open_) write_ignoring_errors(options_.descriptor, "\n");
}

void Progress::update(const ProgressNumbers& numbers) {
  constexpr double kSecondsBetweenFrames = 0.1;
  const double now = options_.clock();
  numbers_ = numbers;
  step_rate_.record(now, numbers.done);
  token_rate_.record(now, numbers.tokens);
  if (now - shown_at_ >= (on_terminal_ ? kSecondsBetweenFrames : options_.seconds_between_lines)) show(now);
}

void Progress::make_room() {
  if (bar_is_open_) write_ignoring_errors(options_.descriptor, "\n");
  bar_is_open_ = false;
}

void Progress::finish() {
  if (!numbers_ || finished_) return;
  finished_ = true;
  show(options_.clock());
  make_room();
}

std::string Progress::details(double now) const {
  std::string text = fmt::format("{}/{} steps", count_text(numbers_->done), count_text(numbers_->total));
  if (numbers_->epoch) text += fmt::format(", epoch {:.2f}", *numbers_->epoch);
  if (numbers_->loss) text += fmt::format(", loss {:.4f}", *numbers_->loss);
  if (numbers_->learning_rate) text += fmt::format(", lr {:.2e}", *numbers_->learning_rate);
  // At the end the rate of the whole run, which people compare.
  const double elapsed = now - started_;
  const double tokens_per_second =
      finished_ && elapsed > 0 ? static_cast<double>(numbers_->tokens) / elapsed : token_rate_.per_second();
  if (numbers_->tokens > 0) text += fmt::format(", {} tokens/s", count_text(std::llround(tokens_per_second)));
  if (finished_) return text + fmt::format(", took {}", duration_text(elapsed));
  const double rate = step_rate_.per_second();
  if (rate > 0) {
    const int64_t remaining = std::max<int64_t>(0, numbers_->total - numbers_->done);
    text += fmt::format(", {} left", duration_text(static_cast<double>(remaining) / rate));
  }
  return text;
}

std::string Progress::plain_line(double now) const {
  return fmt::format("train: {}%, {}\n", percent_done(*numbers_), details(now));
}

std::string Progress::terminal_line(double now) const {
  constexpr size_t kWidestBar = 30;
  constexpr size_t kNarrowestBar = 5;
  constexpr const char* kEraseToEndOfLine = "\x1b[K";
  const size_t columns = columns_of(options_.descriptor) - 1;  // a full last column would wrap
  const std::string text = details(now);
  std::string line = fmt::format("train {:3}% ", percent_done(*numbers_));
  const size_t used = line.size() + text.size() + std::string_view("[] ").size();
  const size_t width = used < columns ? std::min(kWidestBar, columns - used) : 0;
  if (width >= kNarrowestBar) line += bar(share_done(*numbers_), width) + " ";
  line += text;
  return "\r" + line.substr(0, columns) + kEraseToEndOfLine;
}

void Progress::show(double now) {
  write_ignoring_errors(options_.descriptor, on_terminal_ ? terminal_line(now) : plain_line(now));
  shown_at_ = now;
  bar_is_open_ = on_terminal_;
}

}  // namespace strake::monitor
