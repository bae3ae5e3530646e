#include "infer/program/machine.h"

#include <ATen/Functions.h>
#include <omp.h>
#include <sys/resource.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "infer/program/rank.h"
#include "kernels/cpu/cpu_path.h"
#include "kernels/cpu/threads.h"
#include "kernels/gpu/gpu.h"
#include "kernels/weights/large_pages.h"

namespace clover::infer {
namespace {

constexpr int bandwidth_runs = 7;  // timed runs of a bandwidth measurement; their median counts

/// What follows `key` in the first line of `file` that begins with it; empty when there is no such line.  An
/// empty key gives the first line.
std::string value_of_line(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t:", key.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// The sum of words [begin, end).
uint64_t sum_words(const uint64_t* words, int64_t begin, int64_t end) {
  // Four independent sums, so that additions do not wait for each other.
  uint64_t sum[4] = {};
  int64_t i = begin;
  for (; i + 4 <= end; i += 4) {
    for (int lane = 0; lane < 4; ++lane) sum[lane] += words[i + lane];
  }
  for (; i < end; ++i) sum[0] += words[i];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

}  // namespace

nlohmann::json describe_machine(at::Device device) {
  const int64_t memory = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  nlohmann::json machine = {{"cpu", value_of_line("/proc/cpuinfo", "model name")},
                            {"cores", usable_cores()},
                            {"threads", kernels::threads()},
                            {"memory_bytes", memory},
                            {"kernels", kernels::to_string(kernels::cpu_path())}};
  if (device.is_cuda()) {
    machine["gpu"] = kernels::gpu_name(device);
    machine["warpgroup_products"] = kernels::uses_warpgroup_products(device);
  }
  return machine;
}

nlohmann::json describe_build() {
  return {{"version", CLOVER_VERSION},
          {"compiler", std::string("g++ ") + __VERSION__},
          {"build_type", CLOVER_BUILD_TYPE},
          {"libtorch", TORCH_VERSION},
          {"cuda", kernels::has_cuda_kernels}};
}

double measure_read_bandwidth(int64_t bytes) {
  const int64_t size = std::min(bytes, available_memory() / 4);
  const int64_t words = std::max<int64_t>(size, int64_t{1} << 24) / 8;
  // Allocated in the same way as weights, and written once, so that all its pages are in memory.
  const at::Tensor buffer = kernels::zeros_in_large_pages({words}, at::kLong).zero_();
  const auto* from = reinterpret_cast<const uint64_t*>(buffer.const_data_ptr<int64_t>());
  std::atomic<uint64_t> sum{0};
  std::vector<double> seconds;
  for (int run = 0; run < bandwidth_runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    kernels::parallel_for(words, 1 << 16,
                          [&](int64_t first, int64_t last) { sum += sum_words(from, first, last); });
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + bandwidth_runs / 2, seconds.end());
  // The sum is zero; using it keeps the compiler from dropping the reads.
  return static_cast<double>(words * 8 + static_cast<int64_t>(sum.load())) / seconds[bandwidth_runs / 2];
}

double measure_copy_bandwidth(int64_t bytes, at::Device gpu) {
  const int64_t size = std::max<int64_t>(1, std::min(bytes, kernels::free_gpu_memory(gpu) / 4));
  const at::Tensor from = at::zeros({size}, at::TensorOptions(at::kByte).device(gpu));
  at::Tensor to = at::empty_like(from);
  std::vector<double> seconds;
  for (int run = 0; run < bandwidth_runs; ++run) {
    // Timed by events on the GPU, after another copy, so that the time to launch a copy is not counted.
    to.copy_(from);
    const auto begin = kernels::record_event(gpu);
    to.copy_(from);
    const auto end = kernels::record_event(gpu);
    end->wait();
    seconds.push_back(end->seconds_since(*begin));
  }
  std::nth_element(seconds.begin(), seconds.begin() + bandwidth_runs / 2, seconds.end());
  return 2 * static_cast<double>(size) / seconds[bandwidth_runs / 2];
}

int64_t available_memory() {
  constexpr int64_t assumed = int64_t{4} << 30;  // bytes, where the system does not say
  const std::string available = value_of_line("/proc/meminfo", "MemAvailable");
  int64_t bytes = available.empty() ? assumed : std::stoll(available) * 1024;
  const std::string limit = value_of_line("/sys/fs/cgroup/memory.max", "");
  const std::string used = value_of_line("/sys/fs/cgroup/memory.current", "");
  if (!limit.empty() && limit != "max" && !used.empty())
    bytes = std::min(bytes, std::max<int64_t>(0, std::stoll(limit) - std::stoll(used)));
  return bytes;
}

int64_t free_memory(at::Device device) {
  return device.is_cpu() ? available_memory() : kernels::free_gpu_memory(device);
}

int64_t default_cache_bytes(at::Device device) {
  return device.is_cpu() ? free_memory(device) / 4 / local_ranks() : free_memory(device) / 10 * 8;
}

int usable_cores() {
  return std::max(1, omp_get_num_procs());  // respects the process's affinity
}

int64_t peak_memory() {
  const std::string peak = value_of_line("/proc/self/status", "VmHWM");
  if (!peak.empty()) return std::stoll(peak) * 1024;
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace clover::infer
