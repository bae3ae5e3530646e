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

/// All-to-all exchange of tensors between GPUs by NCCL (nccl.cc).  A build without CUDA links no_nccl.cc,
/// whose functions throw.
class GpuCollectives {
 public:
  virtual ~GpuCollectives() = default;
  /// Starts an exchange on the current stream of this process's GPU and returns.  out, in: fp32 [ranks, S] on
  /// that GPU.  Row r of `out` is sent to rank r, row r of `in` is received from rank r.
  virtual void all_to_all(const at::Tensor& out, at::Tensor& in) = 0;
  /// Whether all exchanges have finished.  If another process died, they never finish; the destructor aborts
  /// them.
  virtual bool finished() = 0;

  /// The bytes of an ncclUniqueId.  Rank 0 creates it, and all ranks pass it to `connect`.
  static std::vector<uint8_t> new_id();
  /// A hash of host and PCI address.  It identifies a physical GPU, whatever index CUDA gives it in a
  /// process.
  static uint64_t identity(at::Device gpu);
  /// Joins the communicator of all ranks; returns when all have joined.
  static std::unique_ptr<GpuCollectives> connect(const std::vector<uint8_t>& id, infer::Rank rank,
                                                 at::Device gpu);
};

/// Communication between the processes (ranks) that train one drafter.  All must call the same functions in
/// the same order.  They connect through LibTorch's TCPStore, as under torchrun.  The store carries small
/// messages and gradients on the CPU; gradients on GPUs go over NCCL.  A single process has a communicator
/// with one rank, whose functions return at once.
class Communicator {
 public:
  /// Connects the ranks that the launcher started, at MASTER_ADDR:MASTER_PORT; the default is
  /// 127.0.0.1:29500, in a Slurm job another port.
  /// InputError when their number is not a power of two; std::runtime_error when the store cannot be reached.
  static std::unique_ptr<Communicator> from_environment();

  Communicator() = default;  // a single process
  /// `timeout`: how long `all_gather` and `all_reduce` wait for another rank.  `gpus`: null
  /// to let `use_device` connect them.
  Communicator(infer::Rank rank, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout,
               std::unique_ptr<GpuCollectives> gpus = nullptr);

  infer::Rank rank() const { return rank_; }
  bool is_rank_zero() const { return rank_.number == 0; }
  bool is_only_rank() const { return rank_.count == 1; }

  /// Sets the device of the tensors that `all_reduce` gets, and connects GPUs over NCCL.  InputError when two
  /// ranks share a GPU.
  void use_device(at::Device device);

  /// The sum of the gradients of all ranks, fp32 [size].  It is added up in the order of tree_sum, and the
  /// result is in the memory of `gradient`.  `gradient` is undefined in a rank that has none; has_gradient[r]
  /// says whether rank r has one, and is the same in all ranks.  `options`: dtype and device of a gradient.
  /// Throws as all_gather.
  at::Tensor all_reduce(const at::Tensor& gradient, const std::vector<bool>& has_gradient,
                        const at::TensorOptions& options, int64_t size);

  /// The `values` of each rank, in order of rank; their number may differ between ranks.  std::runtime_error
  /// when a rank called `abort` or did not answer within the timeout, or when the store cannot be reached.
  /// Waiting for rank 0 has no timeout, since it evaluates and saves while the others wait.
  /// infer::Interrupted when a signal came and other ranks do not answer within 20 s.
  std::vector<std::vector<double>> all_gather(const std::vector<double>& values);

  /// all_gather of one 64-bit number of each rank.
  std::vector<uint64_t> all_gather_bits(uint64_t bits);

  /// Runs `work` in each rank and waits for all.  If it throws in a rank, that rank rethrows its exception
  /// and the others throw an InputError.
  void run_on_all_ranks(const std::function<void()>& work);

  /// Tells the other ranks that this one ends because of `reason`; they throw when they next wait.
  void abort(const std::string& reason) noexcept;

  /// Ends the communication.  Rank 0, whose process may serve the store, waits up to 60 s until the others
  /// have read its last values.
  void shut_down();

 private:
  /// As GpuCollectives::all_to_all, with tensors on any device.
  void all_to_all(const at::Tensor& out, at::Tensor& in);
  void all_to_all_over_store(const at::Tensor& out, at::Tensor& in);
  void wait_for_gpus();  // until all exchanges over NCCL have finished; throws as all_gather
  /// How long one query of the store may wait for a key.
  std::chrono::milliseconds poll_timeout() const {
    return std::min<std::chrono::milliseconds>(timeout_, std::chrono::seconds(1));
  }
  template <class Action>
  auto query_store(const Action& action) const;
  class Wait;  // communicator.cc
  // The value of a key of the store, which rank `from` sets.
  std::vector<uint8_t> get(const std::string& key, int64_t from) const;
  void set(const std::string& key, const void* data, size_t size) const;
  void remove(const std::string& key) const;

  infer::Rank rank_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::chrono::milliseconds timeout_{};
  std::unique_ptr<GpuCollectives> gpus_;
  mutable bool lost_ = false;            // the other ranks have ended: do not wait for them
  int64_t gathers_ = 0, exchanges_ = 0;  // how often all_gather and all_to_all ran, for keys of the store
};

}  // namespace clover::train
