#include "infer/bench/trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <filesystem>
#include <set>
#include <stdexcept>

#include "kernels/gpu/gpu.h"

namespace clover::infer {

void trace(at::Device device, const std::string& file, const std::function<void()>& work) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities = {device.is_cpu() ? profiler::ActivityType::CPU
                                                                       : profiler::ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
  work();
  kernels::synchronize(device);
  profiler::disableProfiler()->save(file);
  // The profiler itself only logs what went wrong.
  std::error_code error;
  if (std::filesystem::file_size(file, error) == 0 || error)
    throw std::runtime_error("--trace " + file +
                             ": LibTorch's profiler wrote no trace there; is the disk full?");
}

}  // namespace clover::infer
