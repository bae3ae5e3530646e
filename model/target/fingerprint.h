#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/files/hash.h"

namespace clover::model {

/// A hash of a model's weights: names, shapes, and values rounded to bf16.  Tensors are added one by one, in
/// a fixed order.  The hash does not depend on file format, sharding or stored dtype.
class Fingerprint {
 public:
  /// Adds a floating-point tensor, contiguous, on the CPU.  `in_sampled`: whether `sampled_values` covers it,
  /// too.
  void add(const std::string& name, const at::Tensor& tensor, bool in_sampled = true);

  /// A hash of all values, 16 hex digits.
  std::string all_values() const { return data::hex(all_values_); }

  /// A hash of at most 2047 evenly spaced values of each tensor, 16 hex digits.  The oldest heads folders and
  /// token stores record this one.
  std::string sampled_values() const { return data::hex(sampled_values_); }

 private:
  uint64_t all_values_ = 0;
  uint64_t sampled_values_ = data::fnv1a_offset_basis;
};

}  // namespace clover::model
