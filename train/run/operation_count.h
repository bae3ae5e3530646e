#pragma once

namespace clover::train {

/// Counts the floating-point operations of all matrix products that LibTorch makes while this object lives,
/// in all threads: two for each multiply-add.  Our own kernels are not seen.  One object at a time.
class OperationCount {
 public:
  OperationCount();
  ~OperationCount();
  OperationCount(const OperationCount&) = delete;
  OperationCount& operator=(const OperationCount&) = delete;

  double operations() const;  // so far

 private:
  unsigned long long handle_;  // of LibTorch's callback
};

}  // namespace clover::train
