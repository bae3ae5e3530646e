#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "model/cache/placement.h"

namespace clover::model {

/// How RoPE rotates the queries and keys of a layer whose heads have size d.
struct Rotation {
  std::vector<double> frequencies;  // inverse frequencies, [d/2]
  double scale = 1;                 // multiplies cosines and sines (RoPE's "attention_factor")
  /// For dynamic RoPE and LongRoPE.  A row rotates by `frequencies` if its text has at most
  /// fixed_rotation_length tokens when the row is computed, and else by frequencies_at(length of the text).
  std::function<std::vector<double>(int64_t length)> frequencies_at = {};
  int64_t fixed_rotation_length = std::numeric_limits<int64_t>::max();
};

/// Computes cosines and sines of positions.  In texts of up to fixed_rotation_length tokens the angles depend
/// on the position alone, and come from a table that grows as needed.  In longer texts they also depend on
/// the text's length, and are computed for each row.
class RotaryTable {
 public:
  explicit RotaryTable(Rotation rotation) : rotation_(std::move(rotation)) {}

  struct Row {
    int32_t position;
    int64_t length;  // of the row's text, in tokens
  };
  /// Sets placement.cos and placement.sin, fp32 [R, d/2], for these rows.
  void fill(std::span<const Row> rows, Placement& placement);

 private:
  Rotation rotation_;
  std::vector<float> cos_, sin_;  // the table: [positions so far, d/2]
};

}  // namespace clover::model
