#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/files/hash.h"

namespace clover::model {

/// Tells weights apart, given tensor by tensor: their names, shapes and values rounded to bf16, whatever
/// container and dtype they are stored in.
class Fingerprint {
 public:
  /// `tensor`: floating point, contiguous, on the CPU.  Left out of `sampled` where it used to be ignored.
  void add(const std::string& name, const at::Tensor& tensor, bool in_sampled = true);

  /// 16 hex digits of every value.
  std::string whole() const { return data::hex(whole_); }

  /// 16 hex digits of 1024 to 2047 values of each tensor: all that files recorded at first.
  std::string sampled() const { return data::hex(sampled_); }

 private:
  uint64_t whole_ = 0;
  uint64_t sampled_ = data::fnv_start;
};

}  // namespace clover::model
