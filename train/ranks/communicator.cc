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

constexpr std::chrono::minutes usual_patience{30};
constexpr std::chrono::seconds grace{20};        // for the others to speak after a signal came
constexpr std::chrono::seconds mention{60};      // after which rank 0 says whom it waits for
constexpr int64_t bucket = int64_t{1} << 24;     // floats summed at a time
constexpr size_t piece_bytes = size_t{4} << 20;  // the store refuses values of 8 MiB

std::string rank_name(infer::Rank rank) {
  return "rank " + std::to_string(rank.number) + " of " + std::to_string(rank.count);
}

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

/// Jobs of Slurm that share a machine meet at different ports.
uint16_t port_of_launcher() {
  const int64_t job = std::atoll(setting("SLURM_JOB_ID", "0").c_str());
  const std::string text = setting("MASTER_PORT", std::to_string(29500 + job % 1000).c_str());
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    throw data::InputError("MASTER_PORT: expected a port number, 1 to 65535, found \"" + text + "\".");
  return port;
}

/// What all ranks of this start, and no others, have in common.
std::string name_of_start(infer::Rank rank) {
  const std::string restarts = setting("TORCHELASTIC_MAX_RESTARTS", "0");
  if (restarts != "0" && setting("GROUP_WORLD_SIZE", "1") != "1") {
    throw data::InputError(
        "torchrun on several machines counts its restarts on each of them: expected "
        "--max-restarts 0, found " +
        restarts + "; start it again with --resume auto instead.");
  }
  std::string name = "clover/" + std::to_string(rank.count);
  for (const char* part :
       {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID"})
    name += "/" + setting(part, "0");
  return name;
}

/// torchrun's own process keeps the store; elsewhere rank 0 does.
c10::intrusive_ptr<c10d::Store> meet(infer::Rank rank) {
  const std::string host = setting("MASTER_ADDR", "127.0.0.1"), name = name_of_start(rank);
  c10d::TCPStoreOptions options;
  options.port = port_of_launcher();
  const bool torchrun = setting("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  options.isServer = !torchrun && rank.number == 0;
  options.waitWorkers = false;
  FLAGS_caffe2_log_level = 3;  // LibTorch's own accounts of a lost store run over pages
  try {
    return c10::make_intrusive<c10d::PrefixStore>(name, c10::make_intrusive<c10d::TCPStore>(host, options));
  } catch (const c10::Error& error) {
    throw std::runtime_error(rank_name(rank) + " could not meet the others at " + host + ":" +
                             std::to_string(options.port) +
                             " (MASTER_ADDR, MASTER_PORT): " + error.what_without_backtrace());
  }
}

}  // namespace

std::unique_ptr<Communicator> Communicator::of_launcher() {
  const infer::Rank rank = infer::Rank::of_launcher();
  if (rank.count == 1) return std::make_unique<Communicator>();
  if ((rank.count & (rank.count - 1)) != 0) {
    throw data::InputError(
        "Expected 1, 2, 4, 8 ... processes, so that any number of them computes the same; found " +
        std::to_string(rank.count) + ": start another number.");
  }
  return std::make_unique<Communicator>(rank, meet(rank), usual_patience);
}

Communicator::Communicator(infer::Rank rank, c10::intrusive_ptr<c10d::Store> store,
                           std::chrono::milliseconds patience, std::unique_ptr<GpuLinks> gpus)
    : rank_(rank), store_(std::move(store)), patience_(patience), gpus_(std::move(gpus)) {
  store_->setTimeout(pause());
}

void Communicator::use(at::Device device) {
  if (alone() || !device.is_cuda()) return;
  std::vector<uint64_t> all = gather_bits(GpuLinks::identity(device));
  std::sort(all.begin(), all.end());
  if (std::adjacent_find(all.begin(), all.end()) != all.end())
    throw data::InputError(
        "Two processes use one GPU: expected --device cuda, and no more processes than GPUs.");
  if (first()) {
    const std::vector<uint8_t> id = GpuLinks::new_id();
    set("nccl", id.data(), id.size());
  }
  gpus_ = GpuLinks::join(get("nccl", 0), rank_, device);
}

/// What `action` makes of the store, or a sentence when it is out of reach.
template <class Action>
auto Communicator::ask(const Action& action) const {
  try {
    return action();
  } catch (const c10::DistStoreError&) {
    throw;  // it has not what was asked for
  } catch (const c10::DistError& error) {
    lost_ = true;
    throw std::runtime_error(rank_name(rank_) + " lost the others: " + error.what_without_backtrace() +
                             "; start all of them again with --resume auto");
  }
}

/// For what others do.
class Communicator::Wait {
 public:
  /// For rank `from`, or any of the others.
  Wait(const Communicator& ranks, std::optional<int64_t> from) : ranks_(ranks), from_(from) {}

  /// Throws where it is no use to wait any longer, as gather does.
  void go_on() {
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
    if (ranks_.first() && !mentioned_ && now - begin_ > mention) {
      std::fprintf(stderr, "waiting for %s\n", whom().c_str());
      mentioned_ = true;
    }
    // Rank 0 may evaluate for hours; were it gone, so would be its store, or torchrun would end the rest.
    if ((from_ == 0 && !ranks_.first()) || now - begin_ < ranks_.patience_) return;
    ranks_.lost_ = true;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(ranks_.patience_).count();
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
  bool mentioned_ = false;
};

std::vector<uint8_t> Communicator::get(const std::string& key, int64_t from) const {
  for (Wait wait(*this, from);; wait.go_on()) {
    try {
      return ask([&] { return store_->get(key); });
    } catch (const c10::DistStoreError&) {  // not yet
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

std::vector<std::vector<double>> Communicator::gather(const std::vector<double>& mine) {
  if (alone()) return {mine};
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
  // Who speaks in this round has read the last one.
  if (gathers_ > 0) remove(key(gathers_ - 1, rank_.number));
  ++gathers_;
  return all;
}

std::vector<uint64_t> Communicator::gather_bits(uint64_t mine) {
  std::vector<uint64_t> all;  // in halves that a double holds
  for (const auto& said : gather({static_cast<double>(mine >> 32), static_cast<double>(mine & 0xffffffffu)}))
    all.push_back(static_cast<uint64_t>(said[0]) << 32 | static_cast<uint64_t>(said[1]));
  return all;
}

void Communicator::together(const std::function<void()>& work) {
  std::exception_ptr problem;
  try {
    work();
  } catch (...) {
    problem = std::current_exception();
  }
  std::vector<std::vector<double>> failed;
  try {
    failed = gather({problem ? 1.0 : 0.0});
  } catch (...) {
    if (!problem) throw;
    std::rethrow_exception(problem);
  }
  const bool any = std::any_of(failed.begin(), failed.end(), [](const auto& rank) { return rank[0] != 0; });
  if (any) leave();
  if (problem) std::rethrow_exception(problem);
  if (any) throw data::InputError("Another of the processes could not begin; see its message.");
}

void Communicator::give_up(const std::string& reason) noexcept {
  if (alone() || std::exchange(lost_, true)) return;
  const std::string sentence = rank_name(rank_) + " ended: " + reason;
  try {
    set("given up", sentence.data(), sentence.size());
  } catch (const std::exception&) {  // then they know
  }
}

void Communicator::leave() {
  if (alone() || lost_) return;
  gather({});
  const auto left = [&](int64_t more) { return ask([&] { return store_->add("left", more); }); };
  if (!first()) return void(left(1));
  constexpr std::chrono::milliseconds pause{20}, longest = std::chrono::seconds(60);
  for (auto waited = pause; waited < longest && left(0) < rank_.count - 1; waited += pause)
    std::this_thread::sleep_for(pause);
}

// Each rank sums a part for all: it gets that part of everyone's, and gives the sum to everyone.
at::Tensor Communicator::sum(const at::Tensor& own, const std::vector<bool>& holds,
                             const at::TensorOptions& options, int64_t size) {
  if (alone() || std::none_of(holds.begin(), holds.end(), [](bool any) { return any; })) return own;
  at::Tensor total = own.defined() ? own : at::zeros({size}, options);
  for (int64_t begin = 0; begin < size; begin += bucket) {
    at::Tensor part = total.narrow(0, begin, std::min(bucket, size - begin));
    const int64_t width = (part.numel() + rank_.count - 1) / rank_.count;
    at::Tensor out = at::zeros({rank_.count, width}, options), in = at::empty_like(out);
    out.view({-1}).narrow(0, 0, part.numel()).copy_(part);
    swap(out, in);
    const at::Tensor summed = tree_sum(
        0, rank_.count, [&](int64_t rank) { return holds[rank] ? in.select(0, rank) : at::Tensor(); });
    out.copy_(summed.unsqueeze(0).expand_as(out));
    swap(out, in);
    part.copy_(in.view({-1}).narrow(0, 0, part.numel()));
  }
  if (gpus_) wait_for_gpus();
  return total;
}

void Communicator::wait_for_gpus() {
  // A GPU can be waited for, but not for so long and no longer.
  constexpr std::chrono::microseconds glance{100};
  try {
    Wait wait(*this, std::nullopt);
    for (auto asked = std::chrono::steady_clock::now(); !gpus_->over();) {
      std::this_thread::sleep_for(glance);
      const auto now = std::chrono::steady_clock::now();
      if (now - asked < pause()) continue;
      asked = now;
      wait.go_on();
    }
  } catch (...) {
    gpus_.reset();  // or the GPU would be waited for when this process ends
    throw;
  }
}

void Communicator::swap(const at::Tensor& out, at::Tensor& in) {
  if (gpus_) return gpus_->swap(out, in);
  if (out.is_cpu()) return swap_over_store(out, in);
  at::Tensor here = at::empty_like(out, at::kCPU);
  swap_over_store(out.cpu(), here);
  in.copy_(here);
}

void Communicator::swap_over_store(const at::Tensor& out, at::Tensor& in) {
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
