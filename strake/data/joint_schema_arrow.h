#pragma once

#include <arrow/record_batch.h>

#include <memory>
#include <string>

namespace strake::data {

struct JointFiles {
  std::string first;
  std::string other;
};

// What rows of both files can have: the columns of `first` in its order, nullable where either file's are. Different
// writers' forms of one type become one: strings, bytes and lists have the form (large, view) that they have in
// `first`, and what is null throughout has the other file's type, also inside lists and structs. Error (kData) naming
// files, column and types where that is not possible.
std::shared_ptr<arrow::Schema> joint_schema(const std::shared_ptr<arrow::Schema>& first,
                                            const std::shared_ptr<arrow::Schema>& other, const JointFiles& files);

// The rows with a schema that joint_schema() made of theirs and others.
std::shared_ptr<arrow::RecordBatch> with_schema(const std::shared_ptr<arrow::RecordBatch>& batch,
                                                const std::shared_ptr<arrow::Schema>& schema, const std::string& file);

}  // namespace strake::data
