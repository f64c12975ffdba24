#include "strake/monitor/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <array>
#include <cstdlib>

namespace strake::monitor::progress_test {
namespace {

std::string read_available(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(descriptor, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

// Progress writing into a pipe (as if redirected) with a clock that the test moves.
class RedirectedProgress : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe2(ends_.data(), O_NONBLOCK | O_CLOEXEC), 0); }
  void TearDown() override {
    for (const int end : ends_) ::close(end);
  }
  ProgressOptions options() {
    return {.descriptor = ends_[1], .seconds_between_lines = 10, .clock = [this] { return now_; }};
  }
  std::string written() const { return read_available(ends_[0]); }

  std::array<int, 2> ends_{-1, -1};
  double now_ = 1000;
};

// The same on a pseudo-terminal of 80 columns.
class TerminalProgress : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TERM", "xterm", 1);
    screen_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (screen_ < 0) GTEST_SKIP() << "no pseudo-terminals here";
    ASSERT_EQ(::grantpt(screen_), 0);
    ASSERT_EQ(::unlockpt(screen_), 0);
    terminal_ = ::open(::ptsname(screen_), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(terminal_, 0);
    termios settings{};
    ::tcgetattr(terminal_, &settings);
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // "\n" stays "\n"
    ::tcsetattr(terminal_, TCSANOW, &settings);
    set_columns(80);
  }
  void TearDown() override {
    ::close(terminal_);
    ::close(screen_);
  }
  void set_columns(unsigned short columns) const {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }
  ProgressOptions options() {
    return {.descriptor = terminal_, .clock = [this] { return now_; }};
  }
  std::string written() const { return read_available(screen_); }

  int screen_ = -1;
  int terminal_ = -1;
  double now_ = 1000;
};

TEST_F(RedirectedProgress, WritesOnePlainLinePerIntervalAndOneAtTheEnd) {
  Progress progress(options());
  for (int step = 1; step <= 250; ++step) {
    now_ += 0.1;
    progress.update({.done = step,
                     .total = 1000,
                     .tokens = step * int64_t{200},
                     .epoch = step / 100.0,
                     .loss = 0.5,
                     .learning_rate = 1.8e-5});
  }
  progress.finish();
  progress.finish();
  EXPECT_THAT(written(), testing::MatchesRegex(
                             "train: 10%, 10[01]/1,000 steps, epoch 1.0[01], loss 0.5000, lr 1.80e-05, 2,000 tokens/s, "
                             "1:30 left\n"
                             "train: 20%, 20[012]/1,000 steps, epoch 2.0[012], loss 0.5000, lr 1.80e-05, 2,000 "
                             "tokens/s, 1:20 left\n"
                             "train: 25%, 250/1,000 steps, epoch 2.50, loss 0.5000, lr 1.80e-05, 2,000 tokens/s, took "
                             "0:25\n"));
}

TEST_F(RedirectedProgress, RatesOfAResumedRunCountOnlyThisRun) {
  ProgressOptions resumed = options();
  resumed.done_at_start = 500;
  Progress progress(resumed);
  now_ += 20;
  progress.update({.done = 510, .total = 600});
  EXPECT_EQ(written(), "train: 85%, 510/600 steps, 3:00 left\n");
}

TEST_F(RedirectedProgress, NothingIsWrittenWithoutAnUpdate) {
  {
    Progress progress(options());
    now_ += 100;
    progress.finish();
  }
  EXPECT_EQ(written(), "");
}

TEST_F(RedirectedProgress, AFullOrClosedDescriptorDoesNotEndTheRun) {
  ProgressOptions closed = options();
  closed.descriptor = -1;
  Progress progress(closed);
  progress.update({.done = 1, .total = 1});
  progress.finish();
  const std::string block(1U << 20, 'x');
  ASSERT_GT(::write(ends_[1], block.data(), block.size()), 0);  // fills the pipe
  Progress stuck(options());
  stuck.update({.done = 1, .total = 1});
  stuck.finish();
  EXPECT_THAT(written(), testing::Not(testing::HasSubstr("train")));
}

TEST_F(TerminalProgress, RedrawsOneLineThatFitsTheWidth) {
  Progress progress(options());
  now_ += 1;
  progress.update({.done = 5, .total = 10});
  EXPECT_EQ(written(), "\rtrain  50% [===============>              ] 5/10 steps, 0:01 left\x1b[K");
  now_ += 0.01;
  progress.update({.done = 6, .total = 10});
  EXPECT_EQ(written(), "") << "at most ten frames per second";
  set_columns(43);
  now_ += 0.99;
  progress.update({.done = 9, .total = 10});
  EXPECT_EQ(written(), "\rtrain  90% [======>] 9/10 steps, 0:00 left\x1b[K");
  set_columns(20);
  progress.finish();
  EXPECT_EQ(written(), "\rtrain  90% 9/10 ste\x1b[K\n");
}

TEST_F(TerminalProgress, AnErrorStartsOnItsOwnLine) {
  {
    Progress progress(options());
    progress.update({.done = 1, .total = 10});
  }
  EXPECT_THAT(written(), testing::EndsWith("\x1b[K\n"));
}

TEST_F(TerminalProgress, ADumbTerminalGetsPlainLines) {
  ::setenv("TERM", "dumb", 1);
  Progress progress(options());
  now_ += 1;
  progress.update({.done = 10, .total = 10});
  progress.finish();
  EXPECT_EQ(written(), "train: 100%, 10/10 steps, took 0:01\n");
}

}  // namespace
}  // namespace strake::monitor::progress_test
