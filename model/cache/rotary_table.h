#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "model/cache/placement.h"

namespace clover::model {

/// How RoPE rotates the queries and keys of a layer.
struct Rotation {
  std::vector<double> frequencies;  // inverse frequencies, [d/2]
  double scale = 1;                 // factor of cosines and sines (attention scaling of scaled RoPE)
  /// Dynamic and long RoPE: a row rotates by `frequencies` while its text has at most fixed_rotation_length
  /// tokens when it is computed, else by frequencies_at(the text's length then).
  std::function<std::vector<double>(int64_t length)> frequencies_at = {};
  int64_t fixed_rotation_length = std::numeric_limits<int64_t>::max();
};

/// Cosines and sines of positions.  In texts of up to fixed_rotation_length tokens a position's angles are
/// always the same; they are kept in a table that grows with the positions.  Beyond, they depend on the
/// text's length and are computed for each row.
class RotaryTable {
 public:
  explicit RotaryTable(Rotation rotation) : rotation_(std::move(rotation)) {}

  struct Row {
    int32_t position;
    int64_t length;  // of its text, in tokens
  };
  /// Sets placement.cos and placement.sin, fp32 [R, d/2], for these rows.
  void fill(std::span<const Row> rows, Placement& placement);

 private:
  Rotation rotation_;
  std::vector<float> cos_, sin_;  // [positions seen, d/2]
};

}  // namespace clover::model
