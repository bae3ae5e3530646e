#pragma once

#include <utility>
#include <vector>

#include "infer/engine/live_sequence.h"
#include "model/target/target.h"

namespace clover::infer {

/// Ranges of features, in order, for a drafter to read.  Ranges that are neighbours in the same tensors, such
/// as the rows of a whole batch that drafts at every step, become one.
class FeatureRanges {
 public:
  void add(std::vector<FeatureRange> ranges) {
    for (FeatureRange& range : ranges) {
      rows_ += range.end - range.begin;
      if (!all_.empty() && all_.back().end == range.begin && all_.back().of.is_same_storage(range.of))
        all_.back().end = range.end;
      else
        all_.push_back(std::move(range));
    }
  }
  int64_t rows() const { return rows_; }
  std::vector<model::Features> parts() const {
    std::vector<model::Features> parts;
    for (const auto& [of, begin, end] : all_) parts.push_back(of.slice(begin, end));
    return parts;
  }

 private:
  std::vector<FeatureRange> all_;
  int64_t rows_ = 0;
};

}  // namespace clover::infer
