#include "train/ranks/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Flags.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "train/ranks/tree_sum.h"

C10_DECLARE_int(caffe2_log_level);

namespace clover::train {
namespace {

constexpr std::chrono::minutes default_timeout{30};
constexpr std::chrono::seconds grace{20};                 // how long to wait for the others after a signal
constexpr std::chrono::seconds report_waiting_after{60};  // rank 0 then prints which rank it waits for
constexpr int64_t max_floats_at_once = int64_t{1} << 24;  // of a gradient, in one all_to_all
constexpr size_t piece_bytes = size_t{4} << 20;           // of a value in the store, which refuses 8 MiB

std::string rank_name(infer::Rank rank) {
  return "rank " + std::to_string(rank.number) + " of " + std::to_string(rank.count);
}

std::string environment_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

/// MASTER_PORT; without it a port that differs between Slurm jobs on one machine.
uint16_t port_from_environment() {
  const int64_t job = std::atoll(environment_or("SLURM_JOB_ID", "0").c_str());
  const std::string text = environment_or("MASTER_PORT", std::to_string(29500 + job % 1000).c_str());
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    throw data::InputError("MASTER_PORT: expected a port number, 1 to 65535, found \"" + text + "\".");
  return port;
}

/// A prefix for keys of the store that all ranks of this launch share, and no others.
std::string launch_name(infer::Rank rank) {
  const std::string restarts = environment_or("TORCHELASTIC_MAX_RESTARTS", "0");
  if (restarts != "0" && environment_or("GROUP_WORLD_SIZE", "1") != "1") {
    throw data::InputError(
        "torchrun on several machines counts its restarts on each of them: expected "
        "--max-restarts 0, found " +
        restarts + "; start it again with --resume auto instead.");
  }
  std::string name = "clover/" + std::to_string(rank.count);
  for (const char* part :
       {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID"})
    name += "/" + environment_or(part, "0");
  return name;
}

/// Connects to the store, which torchrun's agent serves, and otherwise rank 0.
c10::intrusive_ptr<c10d::Store> connect_to_store(infer::Rank rank) {
  const std::string host = environment_or("MASTER_ADDR", "127.0.0.1"), name = launch_name(rank);
  c10d::TCPStoreOptions options;
  options.port = port_from_environment();
  const bool torchrun = environment_or("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  options.isServer = !torchrun && rank.number == 0;
  options.waitWorkers = false;
  FLAGS_caffe2_log_level = 3;  // LibTorch would print pages about a lost store
  try {
    return c10::make_intrusive<c10d::PrefixStore>(name, c10::make_intrusive<c10d::TCPStore>(host, options));
  } catch (const c10::Error& error) {
    throw std::runtime_error(rank_name(rank) + " could not meet the others at " + host + ":" +
                             std::to_string(options.port) +
                             " (MASTER_ADDR, MASTER_PORT): " + error.what_without_backtrace());
  }
}

}  // namespace

std::unique_ptr<Communicator> Communicator::from_environment() {
  const infer::Rank rank = infer::Rank::from_environment();
  if (rank.count == 1) return std::make_unique<Communicator>();
  if ((rank.count & (rank.count - 1)) != 0) {
    throw data::InputError(
        "Expected 1, 2, 4, 8 ... processes, so that any number of them computes the same; found " +
        std::to_string(rank.count) + ": start another number.");
  }
  return std::make_unique<Communicator>(rank, connect_to_store(rank), default_timeout);
}

Communicator::Communicator(infer::Rank rank, c10::intrusive_ptr<c10d::Store> store,
                           std::chrono::milliseconds timeout, std::unique_ptr<GpuCollectives> gpus)
    : rank_(rank), store_(std::move(store)), timeout_(timeout), gpus_(std::move(gpus)) {
  store_->setTimeout(poll_timeout());
}

void Communicator::use_device(at::Device device) {
  if (is_only_rank() || !device.is_cuda()) return;
  std::vector<uint64_t> all = all_gather_bits(GpuCollectives::identity(device));
  std::sort(all.begin(), all.end());
  if (std::adjacent_find(all.begin(), all.end()) != all.end())
    throw data::InputError(
        "Two processes use one GPU: expected --device cuda, and no more processes than GPUs.");
  if (is_rank_zero()) {
    const std::vector<uint8_t> id = GpuCollectives::new_id();
    set("nccl", id.data(), id.size());
  }
  gpus_ = GpuCollectives::connect(get("nccl", 0), rank_, device);
}

/// Runs `action`, a query to the store; std::runtime_error in one sentence when the store cannot be reached.
template <class Action>
auto Communicator::ask(const Action& action) const {
  try {
    return action();
  } catch (const c10::DistStoreError&) {
    throw;  // the key is not there yet
  } catch (const c10::DistError& error) {
    lost_ = true;
    throw std::runtime_error(rank_name(rank_) + " lost the others: " + error.what_without_backtrace() +
                             "; start all of them again with --resume auto");
  }
}

/// A wait for other ranks, with its timeouts.
class Communicator::Wait {
 public:
  /// Waits for rank `from`, or for any other rank.
  Wait(const Communicator& ranks, std::optional<int64_t> from) : ranks_(ranks), from_(from) {}

  /// Throws as all_gather when waiting longer is useless.
  void check() {
    const auto now = std::chrono::steady_clock::now();
    if (ranks_.ask([&] { return ranks_.store_->check({"given up"}); })) {
      ranks_.lost_ = true;
      throw std::runtime_error(ranks_.ask([&] { return ranks_.store_->get_to_str("given up"); }));
    }
    if (infer::interrupted() && !signalled_) signalled_ = now;
    if (signalled_ && now - *signalled_ > grace) {
      ranks_.lost_ = true;
      throw infer::Interrupted();
    }
    if (ranks_.is_rank_zero() && !reported_ && now - begin_ > report_waiting_after) {
      std::fprintf(stderr, "waiting for %s\n", whom().c_str());
      reported_ = true;
    }
    // Rank 0 may evaluate for hours, so it has no timeout.  If it dies, the store is lost or torchrun ends
    // the others.
    if ((from_ == 0 && !ranks_.is_rank_zero()) || now - begin_ < ranks_.timeout_) return;
    ranks_.lost_ = true;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(ranks_.timeout_).count();
    throw std::runtime_error(whom() + " has not been heard of for " + std::to_string(seconds) +
                             " s; start all of them again with --resume auto");
  }

 private:
  std::string whom() const {
    return from_ ? rank_name({*from_, ranks_.rank_.count}) : "another of the processes";
  }

  const Communicator& ranks_;
  std::optional<int64_t> from_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> signalled_;
  bool reported_ = false;
};

std::vector<uint8_t> Communicator::get(const std::string& key, int64_t from) const {
  for (Wait wait(*this, from);; wait.check()) {
    try {
      return ask([&] { return store_->get(key); });
    } catch (const c10::DistStoreError&) {  // the key is not there yet
    }
  }
}

void Communicator::set(const std::string& key, const void* data, size_t size) const {
  std::vector<uint8_t> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  ask([&] { store_->set(key, bytes); });
}

void Communicator::remove(const std::string& key) const {
  ask([&] { store_->deleteKey(key); });
}

std::vector<std::vector<double>> Communicator::all_gather(const std::vector<double>& mine) {
  if (is_only_rank()) return {mine};
  const auto key = [&](int64_t round, int64_t rank) {
    return "gather/" + std::to_string(round) + "/" + std::to_string(rank);
  };
  set(key(gathers_, rank_.number), mine.data(), mine.size() * sizeof(double));
  std::vector<std::vector<double>> all(rank_.count);
  for (int64_t rank = 0; rank < rank_.count; ++rank) {
    const std::vector<uint8_t> bytes =
        rank == rank_.number ? std::vector<uint8_t>() : get(key(gathers_, rank), rank);
    all[rank].resize(bytes.size() / sizeof(double));
    if (!bytes.empty()) std::memcpy(all[rank].data(), bytes.data(), bytes.size());
  }
  all[rank_.number] = mine;
  // All ranks have set their values of this round, so all have read those of the last one.
  if (gathers_ > 0) remove(key(gathers_ - 1, rank_.number));
  ++gathers_;
  return all;
}

std::vector<uint64_t> Communicator::all_gather_bits(uint64_t mine) {
  std::vector<uint64_t> all;  // sent as two halves of 32 bits, which doubles hold exactly
  for (const auto& values :
       all_gather({static_cast<double>(mine >> 32), static_cast<double>(mine & 0xffffffffu)}))
    all.push_back(static_cast<uint64_t>(values[0]) << 32 | static_cast<uint64_t>(values[1]));
  return all;
}

void Communicator::run_on_all_ranks(const std::function<void()>& work) {
  std::exception_ptr problem;
  try {
    work();
  } catch (...) {
    problem = std::current_exception();
  }
  std::vector<std::vector<double>> failed;
  try {
    failed = all_gather({problem ? 1.0 : 0.0});
  } catch (...) {
    if (!problem) throw;
    std::rethrow_exception(problem);
  }
  const bool any = std::any_of(failed.begin(), failed.end(), [](const auto& rank) { return rank[0] != 0; });
  if (any) shut_down();
  if (problem) std::rethrow_exception(problem);
  if (any) throw data::InputError("Another of the processes could not begin; see its message.");
}

void Communicator::abort(const std::string& reason) noexcept {
  if (is_only_rank() || std::exchange(lost_, true)) return;
  const std::string sentence = rank_name(rank_) + " ended: " + reason;
  try {
    set("given up", sentence.data(), sentence.size());
  } catch (const std::exception&) {  // without the store the others end by themselves
  }
}

void Communicator::shut_down() {
  if (is_only_rank() || lost_) return;
  all_gather({});
  const auto left = [&](int64_t more) { return ask([&] { return store_->add("left", more); }); };
  if (!is_rank_zero()) return void(left(1));
  constexpr std::chrono::milliseconds pause{20}, longest = std::chrono::seconds(60);
  for (auto waited = pause; waited < longest && left(0) < rank_.count - 1; waited += pause)
    std::this_thread::sleep_for(pause);
}

// Reduce-scatter, then all-gather, both by all_to_all: each rank sums one part of the tensor for all ranks.
at::Tensor Communicator::all_reduce(const at::Tensor& own, const std::vector<bool>& has_gradient,
                                    const at::TensorOptions& options, int64_t size) {
  if (is_only_rank() || std::none_of(has_gradient.begin(), has_gradient.end(), [](bool any) { return any; }))
    return own;
  at::Tensor total = own.defined() ? own : at::zeros({size}, options);
  for (int64_t begin = 0; begin < size; begin += max_floats_at_once) {
    at::Tensor part = total.narrow(0, begin, std::min(max_floats_at_once, size - begin));
    const int64_t width = (part.numel() + rank_.count - 1) / rank_.count;
    at::Tensor out = at::zeros({rank_.count, width}, options), in = at::empty_like(out);
    out.view({-1}).narrow(0, 0, part.numel()).copy_(part);
    all_to_all(out, in);
    const at::Tensor summed = tree_sum(
        0, rank_.count, [&](int64_t rank) { return has_gradient[rank] ? in.select(0, rank) : at::Tensor(); });
    out.copy_(summed.unsqueeze(0).expand_as(out));
    all_to_all(out, in);
    part.copy_(in.view({-1}).narrow(0, 0, part.numel()));
  }
  if (gpus_) wait_for_gpus();
  return total;
}

void Communicator::wait_for_gpus() {
  // CUDA cannot wait with a timeout, so this polls.
  constexpr std::chrono::microseconds poll_interval{100};
  try {
    Wait wait(*this, std::nullopt);
    for (auto asked = std::chrono::steady_clock::now(); !gpus_->finished();) {
      std::this_thread::sleep_for(poll_interval);
      const auto now = std::chrono::steady_clock::now();
      if (now - asked < poll_timeout()) continue;
      asked = now;
      wait.check();
    }
  } catch (...) {
    gpus_.reset();  // otherwise the end of the process would wait for the GPU
    throw;
  }
}

void Communicator::all_to_all(const at::Tensor& out, at::Tensor& in) {
  if (gpus_) return gpus_->all_to_all(out, in);
  if (out.is_cpu()) return all_to_all_over_store(out, in);
  at::Tensor here = at::empty_like(out, at::kCPU);
  all_to_all_over_store(out.cpu(), here);
  in.copy_(here);
}

void Communicator::all_to_all_over_store(const at::Tensor& out, at::Tensor& in) {
  const size_t bytes = static_cast<size_t>(out.size(1)) * sizeof(float);
  const auto key = [&](int64_t from, int64_t to, size_t at) {
    return "swap/" + std::to_string(swaps_) + "/" + std::to_string(from) + "-" + std::to_string(to) + "/" +
           std::to_string(at);
  };
  const auto* from = static_cast<const uint8_t*>(out.const_data_ptr());
  auto* to = static_cast<uint8_t*>(in.mutable_data_ptr());
  for (int64_t rank = 0; rank < rank_.count; ++rank) {
    if (rank == rank_.number) std::memcpy(to + rank * bytes, from + rank * bytes, bytes);
    for (size_t at = 0; at < bytes && rank != rank_.number; at += piece_bytes)
      set(key(rank_.number, rank, at), from + rank * bytes + at, std::min(piece_bytes, bytes - at));
  }
  for (int64_t rank = 0; rank < rank_.count; ++rank) {
    for (size_t at = 0; at < bytes && rank != rank_.number; at += piece_bytes) {
      const std::string name = key(rank, rank_.number, at);
      const std::vector<uint8_t> piece = get(name, rank);
      TORCH_CHECK(piece.size() == std::min(piece_bytes, bytes - at), "rank ", rank, " sent ", piece.size(),
                  " bytes of a gradient, expected ", std::min(piece_bytes, bytes - at));
      std::memcpy(to + rank * bytes + at, piece.data(), piece.size());
      remove(name);
    }
  }
  ++swaps_;
}

}  // namespace clover::train
