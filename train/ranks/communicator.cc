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
constexpr std::chrono::seconds wait_after_signal{20};     // for the other ranks
constexpr std::chrono::seconds report_waiting_after{60};  // rank 0 then prints which rank it waits for
constexpr int64_t max_floats_at_once = int64_t{1} << 24;  // of a gradient, in one all_to_all
constexpr size_t max_value_bytes = size_t{4} << 20;       // of a value in the store, which refuses 8 MiB
constexpr const char* abort_key = "given up";             // its value: why a rank called `abort`

std::string rank_name(infer::Rank rank) {
  return "rank " + std::to_string(rank.number) + " of " + std::to_string(rank.count);
}

/// The value of an environment variable, `fallback` where it is unset or empty.
std::string environment_or(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value && *value ? value : fallback;
}

/// MASTER_PORT, or 29500 plus the last three digits of the Slurm job's id, so that jobs on one machine
/// differ.
uint16_t port_from_environment() {
  const int64_t job = std::atoll(environment_or("SLURM_JOB_ID", "0").c_str());
  const std::string text = environment_or("MASTER_PORT", std::to_string(29500 + job % 1000).c_str());
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    throw data::InputError("MASTER_PORT: expected a port number, 1 to 65535, found \"" + text + "\".");
  return port;
}

/// The prefix of this launch's keys in the store.  torchrun's store outlives a restart, so a new launch needs
/// keys of its own.
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

/// Connects to the store.  torchrun's agent serves it; without torchrun rank 0 does.
c10::intrusive_ptr<c10d::Store> connect_to_store(infer::Rank rank) {
  const std::string host = environment_or("MASTER_ADDR", "127.0.0.1"), name = launch_name(rank);
  c10d::TCPStoreOptions options;
  options.port = port_from_environment();
  const bool torchrun = environment_or("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  options.isServer = !torchrun && rank.number == 0;
  options.waitWorkers = false;
  FLAGS_caffe2_log_level = 3;  // fatal errors only: LibTorch would print pages about a lost store
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
  std::vector<uint64_t> gpus = all_gather_bits(GpuCollectives::identity(device));
  std::sort(gpus.begin(), gpus.end());
  if (std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end())
    throw data::InputError(
        "Two processes use one GPU: expected --device cuda, and no more processes than GPUs.");
  if (is_rank_zero()) {
    const std::vector<uint8_t> id = GpuCollectives::new_id();
    set("nccl", id.data(), id.size());
  }
  gpus_ = GpuCollectives::connect(get("nccl", 0), rank_, device);
}

/// Runs `action`, which queries the store.  c10::DistStoreError when a key does not appear within
/// poll_timeout(); std::runtime_error in one sentence when the store cannot be reached.
template <class Action>
auto Communicator::query_store(const Action& action) const {
  try {
    return action();
  } catch (const c10::DistStoreError&) {
    throw;
  } catch (const c10::DistError& error) {
    lost_ = true;
    throw std::runtime_error(rank_name(rank_) + " lost the others: " + error.what_without_backtrace() +
                             "; start all of them again with --resume auto");
  }
}

/// The time limits of one wait for other ranks.  The caller polls and calls `check` between its attempts.
class Communicator::Wait {
 public:
  /// For a wait for rank `from`, or for all other ranks (nullopt).
  Wait(const Communicator& ranks, std::optional<int64_t> from) : ranks_(ranks), from_(from) {}

  /// Throws as all_gather when the wait must end.
  void check() {
    const auto now = std::chrono::steady_clock::now();
    if (ranks_.query_store([&] { return ranks_.store_->check({abort_key}); })) {
      ranks_.lost_ = true;
      throw std::runtime_error(ranks_.query_store([&] { return ranks_.store_->get_to_str(abort_key); }));
    }
    if (infer::interrupted() && !signalled_) signalled_ = now;
    if (signalled_ && now - *signalled_ > wait_after_signal) {
      ranks_.lost_ = true;
      throw infer::Interrupted();
    }
    if (ranks_.is_rank_zero() && !reported_ && now - begin_ > report_waiting_after) {
      std::fprintf(stderr, "waiting for %s\n", awaited().c_str());
      reported_ = true;
    }
    // Rank 0 may evaluate for hours, so it has no timeout.  If it dies, the store is lost or torchrun ends
    // the other ranks.
    if ((from_ == 0 && !ranks_.is_rank_zero()) || now - begin_ < ranks_.timeout_) return;
    ranks_.lost_ = true;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(ranks_.timeout_).count();
    throw std::runtime_error(awaited() + " has not been heard of for " + std::to_string(seconds) +
                             " s; start all of them again with --resume auto");
  }

 private:
  std::string awaited() const {
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
      return query_store([&] { return store_->get(key); });
    } catch (const c10::DistStoreError&) {  // the key is not there yet
    }
  }
}

void Communicator::set(const std::string& key, const void* data, size_t size) const {
  std::vector<uint8_t> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  query_store([&] { store_->set(key, bytes); });
}

void Communicator::remove(const std::string& key) const {
  query_store([&] { store_->deleteKey(key); });
}

std::vector<std::vector<double>> Communicator::all_gather(const std::vector<double>& values) {
  if (is_only_rank()) return {values};
  const auto key = [&](int64_t round, int64_t rank) {
    return "gather/" + std::to_string(round) + "/" + std::to_string(rank);
  };
  set(key(gathers_, rank_.number), values.data(), values.size() * sizeof(double));
  std::vector<std::vector<double>> gathered(rank_.count);
  for (int64_t rank = 0; rank < rank_.count; ++rank) {
    const std::vector<uint8_t> bytes =
        rank == rank_.number ? std::vector<uint8_t>() : get(key(gathers_, rank), rank);
    gathered[rank].resize(bytes.size() / sizeof(double));
    if (!bytes.empty()) std::memcpy(gathered[rank].data(), bytes.data(), bytes.size());
  }
  gathered[rank_.number] = values;
  // A rank sets its values of this round after it has read all of the previous round, so these can go.
  if (gathers_ > 0) remove(key(gathers_ - 1, rank_.number));
  ++gathers_;
  return gathered;
}

std::vector<uint64_t> Communicator::all_gather_bits(uint64_t bits) {
  std::vector<uint64_t> gathered;  // sent as two halves of 32 bits, which doubles hold exactly
  for (const auto& values :
       all_gather({static_cast<double>(bits >> 32), static_cast<double>(bits & 0xffffffffu)}))
    gathered.push_back(static_cast<uint64_t>(values[0]) << 32 | static_cast<uint64_t>(values[1]));
  return gathered;
}

void Communicator::run_on_all_ranks(const std::function<void()>& work) {
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  std::vector<std::vector<double>> failed;
  try {
    failed = all_gather({error ? 1.0 : 0.0});
  } catch (...) {
    if (!error) throw;
    std::rethrow_exception(error);
  }
  const bool any_failed =
      std::any_of(failed.begin(), failed.end(), [](const auto& rank) { return rank[0] != 0; });
  if (any_failed) shut_down();
  if (error) std::rethrow_exception(error);
  if (any_failed) throw data::InputError("Another of the processes could not begin; see its message.");
}

void Communicator::abort(const std::string& reason) noexcept {
  if (is_only_rank() || std::exchange(lost_, true)) return;
  const std::string sentence = rank_name(rank_) + " ended: " + reason;
  try {
    set(abort_key, sentence.data(), sentence.size());
  } catch (const std::exception&) {  // without the store the others end by themselves
  }
}

void Communicator::shut_down() {
  if (is_only_rank() || lost_) return;
  all_gather({});
  // The number of ranks that have ended, after `count` is added to it.
  const auto add_ended = [&](int64_t count) {
    return query_store([&] { return store_->add("left", count); });
  };
  if (!is_rank_zero()) return void(add_ended(1));
  constexpr std::chrono::milliseconds pause{20}, max_wait = std::chrono::seconds(60);
  for (auto waited = pause; waited < max_wait && add_ended(0) < rank_.count - 1; waited += pause)
    std::this_thread::sleep_for(pause);
}

// A reduce-scatter and then an all-gather, each by one all_to_all: rank r sums part r of the gradients.
at::Tensor Communicator::all_reduce(const at::Tensor& gradient, const std::vector<bool>& has_gradient,
                                    const at::TensorOptions& options, int64_t size) {
  if (is_only_rank() || std::none_of(has_gradient.begin(), has_gradient.end(), [](bool has) { return has; }))
    return gradient;
  at::Tensor total = gradient.defined() ? gradient : at::zeros({size}, options);
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
    for (auto last_check = std::chrono::steady_clock::now(); !gpus_->finished();) {
      std::this_thread::sleep_for(poll_interval);
      const auto now = std::chrono::steady_clock::now();
      if (now - last_check < poll_timeout()) continue;
      last_check = now;
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
  at::Tensor in_on_host = at::empty_like(out, at::kCPU);
  all_to_all_over_store(out.cpu(), in_on_host);
  in.copy_(in_on_host);
}

void Communicator::all_to_all_over_store(const at::Tensor& out, at::Tensor& in) {
  const size_t row_bytes = static_cast<size_t>(out.size(1)) * sizeof(float);
  const auto key = [&](int64_t from, int64_t to, size_t offset) {
    return "swap/" + std::to_string(exchanges_) + "/" + std::to_string(from) + "-" + std::to_string(to) +
           "/" + std::to_string(offset);
  };
  const auto* out_bytes = static_cast<const uint8_t*>(out.const_data_ptr());
  auto* in_bytes = static_cast<uint8_t*>(in.mutable_data_ptr());
  for (int64_t rank = 0; rank < rank_.count; ++rank) {
    const size_t row = rank * row_bytes;
    if (rank == rank_.number) std::memcpy(in_bytes + row, out_bytes + row, row_bytes);
    for (size_t offset = 0; offset < row_bytes && rank != rank_.number; offset += max_value_bytes) {
      set(key(rank_.number, rank, offset), out_bytes + row + offset,
          std::min(max_value_bytes, row_bytes - offset));
    }
  }
  for (int64_t rank = 0; rank < rank_.count; ++rank) {
    for (size_t offset = 0; offset < row_bytes && rank != rank_.number; offset += max_value_bytes) {
      const std::string name = key(rank, rank_.number, offset);
      const std::vector<uint8_t> value = get(name, rank);
      const size_t expected = std::min(max_value_bytes, row_bytes - offset);
      TORCH_CHECK(value.size() == expected, "rank ", rank, " sent ", value.size(),
                  " bytes of a gradient, expected ", expected);
      std::memcpy(in_bytes + rank * row_bytes + offset, value.data(), value.size());
      remove(name);
    }
  }
  ++exchanges_;
}

}  // namespace clover::train
