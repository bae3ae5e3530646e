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

/// All-to-all exchange of tensors between GPUs by NCCL.  A build without CUDA links no_nccl.cc, which throws.
class GpuCollectives {
 public:
  virtual ~GpuCollectives() = default;
  /// Begins Communicator::all_to_all on this process's GPU and its current stream.
  virtual void all_to_all(const at::Tensor& out, at::Tensor& in) = 0;
  /// Whether all exchanges have finished.  One with a process that has died never does; the destructor aborts
  /// it.
  virtual bool finished() = 0;

  /// An NCCL id; one process creates it, and all pass it to `connect`.
  static std::vector<uint8_t> new_id();
  /// Identifies a physical GPU, whatever number CUDA gives it in a process.
  static uint64_t identity(at::Device gpu);
  static std::unique_ptr<GpuCollectives> connect(const std::vector<uint8_t>& id, infer::Rank rank,
                                                 at::Device gpu);
};

/// Communication between the processes that train one drafter.  All call the same functions in the same
/// order.  They connect through LibTorch's TCPStore, as under torchrun.  The store carries small messages
/// and, on the CPU, gradients; gradients of GPUs go over NCCL.  A single process has a communicator with one
/// rank.
class Communicator {
 public:
  /// Connects the ranks that the launcher started, at MASTER_ADDR:MASTER_PORT (default 127.0.0.1:29500).
  /// InputError when their number is no power of two; std::runtime_error when the store cannot be reached.
  static std::unique_ptr<Communicator> from_environment();

  Communicator() = default;  // a single process
  Communicator(infer::Rank rank, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout,
               std::unique_ptr<GpuCollectives> gpus = nullptr);

  infer::Rank rank() const { return rank_; }
  bool is_rank_zero() const { return rank_.number == 0; }
  bool is_only_rank() const { return rank_.count == 1; }

  /// Sets the device of the tensors for `all_reduce`.  InputError when two ranks share a GPU.
  void use_device(at::Device device);

  /// The sum of the tensors `own` of all ranks, fp32 [size], in the order of tree_sum and in the memory of
  /// `own`.  `own` is undefined in a rank without a gradient; `has_gradient` says for each rank whether it
  /// has one, and is the same in all ranks.  `options`: those of such a tensor.  Throws as all_gather.
  at::Tensor all_reduce(const at::Tensor& own, const std::vector<bool>& has_gradient,
                        const at::TensorOptions& options, int64_t size);

  /// The values `mine` of each rank, in order of rank.  std::runtime_error when a rank called `abort` or has
  /// not answered within `timeout`, or when the store cannot be reached.  The timeout does not hold for rank
  /// 0, which evaluates and saves while the others wait.  infer::Interrupted when a signal came and others do
  /// not answer within 20 s.
  std::vector<std::vector<double>> all_gather(const std::vector<double>& mine);

  /// The same for 64 bits of each rank.
  std::vector<uint64_t> all_gather_bits(uint64_t mine);

  /// Runs `work` in each rank.  If it throws in one, that rank throws its exception and the others an
  /// InputError.
  void run_on_all_ranks(const std::function<void()>& work);

  /// Tells the other ranks that this one ends for `reason`; they throw when they wait for it.
  void abort(const std::string& reason) noexcept;

  /// Ends the communication: rank 0, which may hold the store, waits until the others have read its last
  /// values.
  void shut_down();

 private:
  /// out, in: fp32 [ranks, S].  Row r of `out` is sent to rank r, row r of `in` is received from it.
  void all_to_all(const at::Tensor& out, at::Tensor& in);
  void all_to_all_over_store(const at::Tensor& out, at::Tensor& in);
  void wait_for_gpus();
  /// How long one query to the store may wait.
  std::chrono::milliseconds poll_timeout() const {
    return std::min<std::chrono::milliseconds>(timeout_, std::chrono::seconds(1));
  }
  template <class Action>
  auto ask(const Action& action) const;
  class Wait;
  std::vector<uint8_t> get(const std::string& key, int64_t from) const;
  void set(const std::string& key, const void* data, size_t size) const;
  void remove(const std::string& key) const;

  infer::Rank rank_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::chrono::milliseconds timeout_{};
  std::unique_ptr<GpuCollectives> gpus_;
  mutable bool lost_ = false;  // the other ranks are gone: do not wait for them
  int64_t gathers_ = 0, swaps_ = 0;
};

}  // namespace clover::train
