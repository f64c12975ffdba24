#pragma once

#include <map>
#include <optional>
#include <string>

#include "strake/core/error.h"

namespace strake::comm {

// What ranks, their PmiServer and their guard say to each other: lines "cmd=NAME key=value ...", as in PMI-1, which has
// none of these:
//   cmd=watch rank=R size=N host=H pid=P
//                                   from a rank of N: it has come and wants to hear of the others
//   cmd=fail kind=K text=...        from a rank: it gives up, and why
//   cmd=leave                       from a rank: it is done, and its end is no failure
//   cmd=wait                        from a rank: it has been waiting for others for a while
//   cmd=work                        from a rank: it waits no more
//   cmd=late seconds=S text=...     from a rank: it has waited as long as it may, and in which collective
//   cmd=go                          to a rank: all ranks have come
//   cmd=stop rank=R kind=K text=... to a rank: what ended the job, said once; with gave_up=1 if rank R said so itself
//   cmd=bye                         to a rank: there will be no more news
using Fields = std::map<std::string, std::string>;

// "text" has the rest of its line, spaces and all; other values end at a space.
Fields parse_line(const std::string& line);

// The value, or "" if there is none.
std::string field(const Fields& fields, const char* name);
// The number of the rank that a line names.
int rank_of(const Fields& fields);
// Of the rank that said `watch`: "process 4711 on node7".
std::string process_of(const Fields& watch);
// `line` is given without its end. False if the other side is gone.
bool send_line(int socket, const std::string& line);

// Cuts what comes out of a socket into lines.
class LineReader {
 public:
  // Waits for bytes; false at the end of the connection, or if the other side sends more than a line may have.
  bool receive(int socket);
  // Why the last receive() was false; 0: the other side ended the connection, or sent too much.
  int error() const { return error_; }
  // The next whole line that was received, without its end.
  std::optional<std::string> take();

 private:
  std::string pending_;
  int error_ = 0;
};

// Why a job cannot go on: the first rank that failed.
struct RankNews {
  int rank = 0;
  ErrorKind kind = ErrorKind::kComm;
  std::string text;      // one line that names the rank
  bool gave_up = false;  // it said so itself, and ends the job where there is a launcher
};

std::string stop_line(const RankNews& news);
RankNews parse_news(const Fields& fields);

// Of a rank that ended without a word; `detail` is what is known of its process.
RankNews gone_news(int rank, const std::string& detail);
// Of the rank that said `watch` and did not say `leave`. `error`: LineReader's.
RankNews gone_news(const Fields& watch, int error);
// "the connection broke off (Connection timed out): ...", as an end of the machine or the network shows; "" of other
// errors, which the end of the process has, too.
std::string broken_connection(int error);
// Of the rank that said `watch` and later `failure`.
RankNews failure_news(const Fields& watch, const Fields& failure);
// The line that a rank says first, and the one with which it gives up.
std::string watch_line(int rank, int num_ranks);
std::string fail_line(ErrorKind kind, const std::string& reason);

// A number that another process sent, 0 if it is none.
int parse_number(const std::string& text);

}  // namespace strake::comm
