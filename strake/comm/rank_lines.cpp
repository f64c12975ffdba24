#include "strake/comm/rank_lines.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "strake/core/host_name.h"

namespace strake::comm {
namespace {

constexpr size_t kMaxLine = 4096;
constexpr size_t kMaxText = 2000;

ErrorKind parse_kind(const std::string& text) {
  const int number = parse_number(text);
  const bool known = number >= 0 && number <= static_cast<int>(ErrorKind::kInterrupted);
  return known ? static_cast<ErrorKind>(number) : ErrorKind::kInternal;
}

}  // namespace

Fields parse_line(const std::string& line) {
  constexpr std::string_view kText = " text=";
  Fields fields;
  const size_t text = line.find(kText);
  if (text != std::string::npos) fields["text"] = line.substr(text + kText.size());
  std::istringstream words(line.substr(0, text));
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) fields[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return fields;
}

std::string field(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : found->second;
}

int rank_of(const Fields& fields) { return parse_number(field(fields, "rank")); }

std::string process_of(const Fields& watch) {
  return fmt::format("process {} on {}", parse_number(field(watch, "pid")), printable(field(watch, "host")));
}

bool send_line(int socket, const std::string& line) {
  const std::string text = line + "\n";
  return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

bool LineReader::receive(int socket) {
  error_ = 0;
  if (pending_.size() >= kMaxLine) return false;
  std::array<char, kMaxLine> buffer{};
  ssize_t got = 0;
  do {
    got = ::recv(socket, buffer.data(), buffer.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) error_ = errno;
  if (got <= 0) return false;
  pending_.append(buffer.data(), static_cast<size_t>(got));
  return true;
}

std::optional<std::string> LineReader::take() {
  const size_t end = pending_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return line;
}

std::string stop_line(const RankNews& news) {
  return fmt::format("cmd=stop rank={} kind={}{} text={}", news.rank, static_cast<int>(news.kind),
                     news.gave_up ? " gave_up=1" : "", news.text.substr(0, kMaxText));
}

RankNews parse_news(const Fields& fields) {
  return {.rank = rank_of(fields),
          .kind = parse_kind(field(fields, "kind")),
          .text = printable(field(fields, "text"), kMaxLine),
          .gave_up = field(fields, "gave_up") == "1"};
}

RankNews gone_news(int rank, const std::string& detail) {
  return {.rank = rank,
          .kind = ErrorKind::kComm,
          .text = fmt::format("rank {} is gone: the others cannot go on without it ({})", rank, detail)};
}

RankNews gone_news(const Fields& watch, int error) {
  const std::string broken = broken_connection(error);
  if (!broken.empty()) return gone_news(rank_of(watch), fmt::format("its {}: {}", process_of(watch), broken));
  return gone_news(rank_of(watch), fmt::format("its {} ended without a word: killed, or crashed", process_of(watch)));
}

std::string broken_connection(int error) {
  constexpr std::array kOfTheNetwork{ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ENETDOWN};
  if (std::ranges::find(kOfTheNetwork, error) == kOfTheNetwork.end()) return "";
  return fmt::format("the connection broke off ({}): its machine, or the network", std::strerror(error));
}

RankNews failure_news(const Fields& watch, const Fields& failure) {
  const int rank = rank_of(watch);
  return {.rank = rank,
          .kind = parse_kind(field(failure, "kind")),
          .text = fmt::format("rank {} stopped: {}", rank, field(failure, "text")),
          .gave_up = true};
}

std::string fail_line(ErrorKind kind, const std::string& reason) {
  std::string text = reason.substr(0, kMaxText);
  std::ranges::replace(text, '\n', ' ');
  return fmt::format("cmd=fail kind={} text={}", static_cast<int>(kind), text);
}

std::string watch_line(int rank, int num_ranks) {
  return fmt::format("cmd=watch rank={} size={} host={} pid={}", rank, num_ranks, host_name(), ::getpid());
}

int parse_number(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace strake::comm
