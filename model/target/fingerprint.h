#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/files/hash.h"

namespace clover::model {

/// A hash of a model's weights, added tensor by tensor: names, shapes, and values rounded to bf16.  It does
/// not depend on file format, sharding or stored dtype.
class Fingerprint {
 public:
  /// Adds a floating-point tensor, contiguous, on the CPU.  in_sampled: whether it enters `sampled_values`,
  /// too.
  void add(const std::string& name, const at::Tensor& tensor, bool in_sampled = true);

  /// 16 hex digits: hash of all values.
  std::string all_values() const { return data::hex(all_values_); }

  /// 16 hex digits: hash of 1024 to 2047 values of each tensor, which is what the oldest files record.
  std::string sampled_values() const { return data::hex(sampled_values_); }

 private:
  uint64_t all_values_ = 0;
  uint64_t sampled_values_ = data::fnv1a_offset_basis;
};

}  // namespace clover::model
