#include <arrow/api.h>
#include <arrow/util/byte_size.h>

#include <numeric>

#include "strake/data/row_bytes_arrow.h"

namespace strake::data {
namespace {

// With where a value ends: of many columns of short ones that is most.
template <typename ArrayType>
void add_lengths(const arrow::Array& array, std::vector<int64_t>& bytes) {
  const auto& values = static_cast<const ArrayType&>(array);
  constexpr auto kEnd = static_cast<int64_t>(sizeof(typename ArrayType::offset_type));
  for (int64_t i = 0; i < values.length(); ++i) bytes[static_cast<size_t>(i)] += values.value_length(i) + kEnd;
}

void add_view_lengths(const arrow::StringViewArray& array, std::vector<int64_t>& bytes) {
  for (int64_t i = 0; i < array.length(); ++i) {
    if (array.IsValid(i)) bytes[static_cast<size_t>(i)] += std::ssize(array.GetView(i));
  }
}

// Rows of a dictionary have the length of their value, as they will when they are used.
void add_dictionary_lengths(const arrow::DictionaryArray& array, std::vector<int64_t>& bytes) {
  std::vector<int64_t> of_values(static_cast<size_t>(array.dictionary()->length()));
  if (!of_values.empty()) add_bytes(*array.dictionary(), of_values);
  for (int64_t i = 0; i < array.length(); ++i) {
    if (array.IsValid(i)) bytes[static_cast<size_t>(i)] += of_values[static_cast<size_t>(array.GetValueIndex(i))];
  }
}

// The values of a list count one by one, with where they are: small ones in Parquet may be large where they are used.
template <typename ListArray>
void add_list_bytes(const arrow::Array& array, std::vector<int64_t>& bytes) {
  const auto& lists = static_cast<const ListArray&>(array);
  const int64_t first = lists.value_offset(0);
  const auto values = lists.values()->Slice(first, lists.value_offset(array.length()) - first);
  if (values->length() == 0) return;
  std::vector<int64_t> of_values(static_cast<size_t>(values->length()), sizeof(int32_t));
  add_bytes(*values, of_values);
  for (int64_t i = 0; i < array.length(); ++i) {
    const auto begin = of_values.begin() + (lists.value_offset(i) - first);
    bytes[static_cast<size_t>(i)] += std::accumulate(begin, begin + lists.value_length(i), int64_t{0});
  }
}

}  // namespace

void add_bytes(const arrow::Array& array, std::vector<int64_t>& bytes) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return add_lengths<arrow::BinaryArray>(array, bytes);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return add_lengths<arrow::LargeBinaryArray>(array, bytes);
    case arrow::Type::STRING_VIEW:
      return add_view_lengths(static_cast<const arrow::StringViewArray&>(array), bytes);
    case arrow::Type::DICTIONARY:
      return add_dictionary_lengths(static_cast<const arrow::DictionaryArray&>(array), bytes);
    case arrow::Type::LIST:
      return add_list_bytes<arrow::ListArray>(array, bytes);
    case arrow::Type::LARGE_LIST:
      return add_list_bytes<arrow::LargeListArray>(array, bytes);
    default:
      // Of numbers, which are most columns, without a look at the buffers.
      if (const int width = array.type()->bit_width(); width > 0) {
        for (int64_t& of_row : bytes) of_row += (width + 7) / 8;
        return;
      }
      const int64_t whole = arrow::util::ReferencedBufferSize(array).ValueOr(0);
      for (int64_t& of_row : bytes) of_row += whole / std::ssize(bytes);
  }
}

}  // namespace strake::data
