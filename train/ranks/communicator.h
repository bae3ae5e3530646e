#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infer/program/rank.h"

namespace clover::train {

/// Tensors from each of several GPUs to each: NCCL.  A build without CUDA links no_nccl.cc, which throws.
class GpuLinks {
 public:
  virtual ~GpuLinks() = default;
  /// Begins what Communicator::swap does, on this process's GPU and its current stream.
  virtual void swap(const at::Tensor& out, at::Tensor& in) = 0;
  /// Whether all that was begun is over.  It never will be where another process is gone: destroyed, the
  /// links end it.
  virtual bool over() = 0;

  /// Of bytes that one process makes and all are given.
  static std::vector<uint8_t> new_id();
  /// Differs from GPU to GPU, whatever number it has for a process.
  static uint64_t identity(at::Device gpu);
  static std::unique_ptr<GpuLinks> join(const std::vector<uint8_t>& id, infer::Rank rank, at::Device gpu);
};

/// The processes that train one drafter together, each calling the same functions in the same order.  They
/// meet at a key-value store (LibTorch's TCPStore, as torchrun does), which carries what is small and, on the
/// CPU, gradients; those of GPUs go over NCCL.  One process alone is all ranks there are.
class Communicator {
 public:
  /// The launcher's ranks, met at MASTER_ADDR:MASTER_PORT (127.0.0.1:29500).  InputError when their number is
  /// no power of two; std::runtime_error when they do not meet.
  static std::unique_ptr<Communicator> of_launcher();

  Communicator() = default;  // alone
  Communicator(infer::Rank rank, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds patience,
               std::unique_ptr<GpuLinks> gpus = nullptr);

  infer::Rank rank() const { return rank_; }
  bool first() const { return rank_.number == 0; }
  bool alone() const { return rank_.count == 1; }

  /// Tensors for `sum` lie on `device` from now on.  InputError when two ranks share a GPU.
  void use(at::Device device);

  /// The sum of all ranks' `own`, fp32 [size], as tree_sum makes it, in the memory of `own`; undefined where
  /// a rank has nothing, as `holds` says of each rank, in all ranks alike.  `options` of such a tensor.
  /// std::runtime_error and infer::Interrupted as of gather.
  at::Tensor sum(const at::Tensor& own, const std::vector<bool>& holds, const at::TensorOptions& options,
                 int64_t size);

  /// What each rank says, in their order.  std::runtime_error when one is gone: it has said so, it has not
  /// spoken for as long as `patience`, or the store is out of reach.  Rank 0, which evaluates and saves while
  /// others wait, may take longer.  infer::Interrupted when a signal came and the others still do not speak.
  std::vector<std::vector<double>> gather(const std::vector<double>& mine);

  /// 64 bits of each rank, likewise.
  std::vector<uint64_t> gather_bits(uint64_t mine);

  /// Does `work` in each rank; where it fails in one, its exception, or in the others an InputError, ends
  /// all.
  void together(const std::function<void()>& work);

  /// This rank ends for `reason`, and so will those that wait for it.
  void give_up(const std::string& reason) noexcept;

  /// At the end: rank 0 stays until all others have read what it said.
  void leave();

 private:
  /// out, in: fp32 [ranks, S]; row r goes to rank r, and comes from it.
  void swap(const at::Tensor& out, at::Tensor& in);
  void swap_over_store(const at::Tensor& out, at::Tensor& in);
  void wait_for_gpus();
  /// Between one question to the store and the next.
  std::chrono::milliseconds pause() const {
    return std::min<std::chrono::milliseconds>(patience_, std::chrono::seconds(1));
  }
  template <class Action>
  auto ask(const Action& action) const;
  class Wait;
  std::vector<uint8_t> get(const std::string& key, int64_t from) const;
  void set(const std::string& key, const void* data, size_t size) const;
  void remove(const std::string& key) const;

  infer::Rank rank_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::chrono::milliseconds patience_{};
  std::unique_ptr<GpuLinks> gpus_;
  mutable bool lost_ = false;  // the others are not waited for any more
  int64_t gathers_ = 0, swaps_ = 0;
};

}  // namespace clover::train
