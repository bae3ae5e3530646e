#include "model/cache/rotary_table.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace clover::model {

void RotaryTable::fill(std::span<const Row> rows, Placement& placement) {
  const int64_t half = std::ssize(rotation_.frequencies), count = std::ssize(rows);
  const auto cos_and_sin = [scale = rotation_.scale](int64_t position, double frequency) {
    const double angle = static_cast<double>(position) * frequency;
    return std::pair(static_cast<float>(scale * std::cos(angle)),
                     static_cast<float>(scale * std::sin(angle)));
  };
  int64_t positions = 0;  // that the table must have
  for (const Row& row : rows)
    if (row.length <= rotation_.fixed_rotation_length)
      positions = std::max<int64_t>(positions, row.position + 1);
  for (int64_t position = std::ssize(cos_) / half; position < positions; ++position) {
    for (const double frequency : rotation_.frequencies) {
      const auto [cos, sin] = cos_and_sin(position, frequency);
      cos_.push_back(cos), sin_.push_back(sin);
    }
  }
  placement.cos = at::empty({count, half}, at::kFloat);
  placement.sin = at::empty({count, half}, at::kFloat);
  std::vector<double> frequencies;
  int64_t length_of_frequencies = 0;  // the text length that `frequencies` are for
  for (int64_t row = 0; row < count; ++row) {
    const int64_t position = rows[row].position, length = rows[row].length;
    float* cos = placement.cos.data_ptr<float>() + row * half;
    float* sin = placement.sin.data_ptr<float>() + row * half;
    if (length <= rotation_.fixed_rotation_length) {
      std::copy_n(cos_.begin() + position * half, half, cos);
      std::copy_n(sin_.begin() + position * half, half, sin);
      continue;
    }
    if (std::exchange(length_of_frequencies, length) != length)
      frequencies = rotation_.frequencies_at(length);
    for (int64_t i = 0; i < half; ++i) std::tie(cos[i], sin[i]) = cos_and_sin(position, frequencies[i]);
  }
}

}  // namespace clover::model
