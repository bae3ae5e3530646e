#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "kernels/cpu/threads.h"

namespace clover::kernels {

/// Runs `body` on every path of the program that this is linked into: each instruction family of this machine
/// (cpu_paths.cc), the kernels of a GPU (cuda_paths.cc), or the same kernels emulated (emulated_paths.cc).
void on_every_path(const std::function<void()>& body);

/// Runs `body` with that many threads.
template <class Body>
void with_threads(int threads, const Body& body) {
  const int64_t before = kernels::threads();
  set_threads(threads);
  body();
  set_threads(before);
}

/// Equal to the bit, so that NaN equals itself and -0 differs from 0.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

/// The sentence of the c10::Error that `body` throws; empty if none.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace clover::kernels
