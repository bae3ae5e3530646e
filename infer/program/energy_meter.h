#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

namespace clover::infer {

/// The energy that the machine has used since construction: that of its CPU packages by RAPL, which many
/// systems let only root read, and on a GPU also that of the GPU by NVML.  Other programs' share is in it.
class EnergyMeter {
 public:
  /// `powercap`: where Linux shows RAPL's counters.
  explicit EnergyMeter(at::Device device, std::filesystem::path powercap = "/sys/class/powercap");
  EnergyMeter(EnergyMeter&&) noexcept;
  EnergyMeter& operator=(EnergyMeter&&) noexcept;
  ~EnergyMeter();

  /// A meter for a process that has no other ranks beside it: those would each count all of a machine's CPUs.
  static std::optional<EnergyMeter> of_only_rank(at::Device device, int64_t ranks);

  /// Joules, at most `max_age` old; 0 where the machine tells none.  RAPL's counters begin again after some
  /// minutes of full load, so this must be called every few minutes.
  double joules(std::chrono::seconds max_age = std::chrono::seconds(0));

 private:
  struct Package {
    std::filesystem::path counter;  // a file with microjoules
    int64_t range = 0;              // microjoules after which the counter begins again; 0: not known
    int64_t last = 0;
  };
  class Gpu;

  std::vector<Package> packages_;
  std::unique_ptr<Gpu> gpu_;  // null: none, or NVML does not tell
  double package_joules_ = 0, gpu_joules_ = 0;
  std::chrono::steady_clock::time_point read_{};  // so the first call reads the counters
};

}  // namespace clover::infer
