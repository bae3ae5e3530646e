#pragma once

#include <utility>
#include <vector>

#include "infer/engine/live_sequence.h"
#include "model/target/target.h"

namespace clover::infer {

/// The features that a drafter reads, as ranges of rows in order.  A range that continues the one before it
/// in the same tensors is joined with it: a batch in which every sequence drafts at every step needs one
/// range.
class FeatureRanges {
 public:
  void add(std::vector<FeatureRange> ranges) {
    for (FeatureRange& range : ranges) {
      rows_ += range.end - range.begin;
      if (!ranges_.empty() && ranges_.back().end == range.begin &&
          ranges_.back().features.is_same_storage(range.features))
        ranges_.back().end = range.end;
      else
        ranges_.push_back(std::move(range));
    }
  }
  int64_t rows() const { return rows_; }  // of all ranges
  /// A view of each range.
  std::vector<model::Features> parts() const {
    std::vector<model::Features> parts;
    for (const auto& [features, begin, end] : ranges_) parts.push_back(features.slice(begin, end));
    return parts;
  }

 private:
  std::vector<FeatureRange> ranges_;
  int64_t rows_ = 0;
};

}  // namespace clover::infer
