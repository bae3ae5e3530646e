#include "infer/program/energy_meter.h"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "kernels/gpu/gpu.h"

namespace clover::infer {
namespace {

namespace fs = std::filesystem;

/// The first word of a file as a number; nothing if it cannot be read.
std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  int64_t number = 0;
  return stream >> number ? std::optional(number) : std::nullopt;
}

std::string word_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

}  // namespace

/// A GPU's energy counter.  NVML comes with the driver, so it is loaded at run time.
class EnergyMeter::Gpu {
 public:
  /// Null if NVML or its counter is not there.
  static std::unique_ptr<Gpu> open(at::Device device) {
    auto gpu = std::make_unique<Gpu>();
    gpu->library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (gpu->library_ == nullptr) return nullptr;
    const auto init = gpu->function<int()>("nvmlInit_v2");
    const auto find = gpu->function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    gpu->read_ = gpu->function<int(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
    const std::string bus_id = kernels::gpu_pci_bus_id(device);
    if (!init || !find || !gpu->read_ || init() != 0 || find(bus_id.c_str(), &gpu->handle_) != 0)
      return nullptr;
    gpu->shut_down_ = gpu->function<int()>("nvmlShutdown");
    const std::optional<double> now = gpu->total();
    if (!now) return nullptr;
    gpu->begin_ = *now;
    return gpu;
  }
  Gpu() = default;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() {
    if (shut_down_ != nullptr) shut_down_();
    if (library_ != nullptr) ::dlclose(library_);
  }

  /// Joules since `open`; nothing when NVML fails.
  std::optional<double> joules() const {
    const std::optional<double> now = total();
    return now ? std::optional(*now - begin_) : std::nullopt;
  }

 private:
  template <class Signature>
  Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(::dlsym(library_, name));
  }
  std::optional<double> total() const {
    unsigned long long millijoules = 0;
    if (read_(handle_, &millijoules) != 0) return std::nullopt;
    return static_cast<double>(millijoules) * 1e-3;
  }

  void* library_ = nullptr;
  void* handle_ = nullptr;
  int (*read_)(void*, unsigned long long*) = nullptr;
  int (*shut_down_)() = nullptr;
  double begin_ = 0;
};

// A package has a folder intel-rapl:N, also on AMD's CPUs; intel-rapl:N:M are parts of it.
EnergyMeter::EnergyMeter(at::Device device, fs::path powercap) {
  std::error_code ignored;
  for (const auto& zone : fs::directory_iterator(powercap, ignored)) {
    const std::string name = zone.path().filename().string(), prefix = "intel-rapl:";
    if (!name.starts_with(prefix) || name.find(':', prefix.size()) != std::string::npos) continue;
    if (!word_in(zone.path() / "name").starts_with("package")) continue;
    const fs::path counter = zone.path() / "energy_uj";
    if (const auto now = number_in(counter))
      packages_.push_back({counter, number_in(zone.path() / "max_energy_range_uj").value_or(0), *now});
  }
  if (device.is_cuda()) gpu_ = Gpu::open(device);
}

EnergyMeter::EnergyMeter(EnergyMeter&&) noexcept = default;
EnergyMeter& EnergyMeter::operator=(EnergyMeter&&) noexcept = default;
EnergyMeter::~EnergyMeter() = default;

std::optional<EnergyMeter> EnergyMeter::of_only_rank(at::Device device, int64_t ranks) {
  if (ranks > 1) return std::nullopt;
  return std::optional<EnergyMeter>(std::in_place, device);
}

double EnergyMeter::joules(std::chrono::seconds max_age) {
  const auto now = std::chrono::steady_clock::now();
  if (max_age.count() > 0 && now - read_ < max_age) return package_joules_ + gpu_joules_;
  read_ = now;
  for (Package& package : packages_) {
    const std::optional<int64_t> microjoules = number_in(package.counter);
    if (!microjoules) continue;
    const int64_t used = *microjoules - std::exchange(package.last, *microjoules);
    package_joules_ +=
        1e-6 * static_cast<double>(used >= 0 ? used : std::max<int64_t>(0, used + package.range));
  }
  if (gpu_) gpu_joules_ = gpu_->joules().value_or(gpu_joules_);
  return package_joules_ + gpu_joules_;
}

}  // namespace clover::infer
