#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strake/monitor/evaluation_metrics.h"

namespace strake::monitor {

// Of entities, as seqeval (Nakayama, 2018) counts them without a scheme, which Hugging Face's run_ner.py reports: an
// entity is right if its beginning, end and type are. Precision, recall and f1 are of all entities (0/0 is 0), accuracy
// is the share of right labels.
struct EntityMetrics {
  double precision = 0;
  double recall = 0;
  double f1 = 0;
  double accuracy = 0;

  NamedValues named_values() const;
};

// Labels of one text's words, as indices of `names`.
struct LabelledText {
  std::span<const int32_t> predicted;
  std::span<const int32_t> actual;
};

// Adds up texts, whose entities never go on in the next one. `names`: "B-PER", "I-PER", "O"; a label without a prefix
// is one that its first character is. seqeval reads all texts as one with an O behind each, which for an O of no type
// has type "_", as labels of one character have: such a label at a text's beginning begins no entity.
class EntityCounter {
 public:
  explicit EntityCounter(const std::vector<std::string>& names);

  // Error (kData) for spans of different lengths and for an index that is none.
  void add(const LabelledText& text);
  // Error (kData) if no text had a label.
  EntityMetrics metrics() const;

 private:
  struct Label {
    char tag;
    std::string type;
  };
  struct Entity {
    int64_t begin, end;
    std::string_view type;
    bool operator==(const Entity&) const = default;
  };
  // `begin`: of the entity begun last, also in texts before.
  std::vector<Entity> entities(std::span<const int32_t> labels, int64_t& begin) const;

  std::vector<Label> labels_;
  int64_t position_ = 0;  // of the text in all of them
  int64_t predicted_begin_ = 0, actual_begin_ = 0;
  int64_t labels_seen_ = 0, labels_right_ = 0;
  int64_t predicted_ = 0, actual_ = 0, right_ = 0;  // entities
};

}  // namespace strake::monitor
