#pragma once

#include <span>
#include <string>
#include <string_view>

// The metrics of the Stanford Question Answering Dataset as its evaluation scripts compute them: Rajpurkar et al.,
// "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016 (v1.1), and "Know What You Don't Know", 2018
// (v2.0).
namespace strake::rows {

// How an answer with nothing in it after normalization counts. kOne: it shares no word with another one, so that its F1
// is 0. kTwo: true answers without words are left out; an empty answer is as good as another one.
// Both: a question without a true answer has the empty one.
enum class SquadVersion { kOne, kTwo };

struct AnswerScore {
  double exact_match = 0;  // 0 or 1
  double f1 = 0;           // 0 to 1
};

// Lower case, without ASCII punctuation and the words a, an and the, with single spaces between words. But for a
// capital sigma at the end of a word, which Python writes as another letter than within a word.
std::string normalized_answer(std::string_view text);

// The best over all true answers, of both numbers.
AnswerScore score_answer(std::string_view predicted, std::span<const std::string> truths, SquadVersion version);

}  // namespace strake::rows
