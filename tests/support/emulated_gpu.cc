#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/graph.h"
#include "kernels/gpu/overlap.h"
#include "tests/support/recording.h"
#include "tests/support/stand_in_device.h"

// The functions of kernels/gpu for an emulated GPU: its tensors are on the stand-in device, and its kernels
// run in the CUDA emulation.  The linker takes these definitions instead of the library's.
namespace clover::kernels {

const bool has_cuda_kernels = true;

int64_t gpu_count() {
  return 1;
}
at::Device open_gpu(int64_t index) {
  TORCH_CHECK(index == 0, "GPU ", index, " does not exist, expected 0 to 0.");
  const at::Device gpu = test::stand_in_device();
  uses_warpgroup_products(gpu);  // finds out now, which is impossible while a graph is recorded
  return gpu;
}
std::string gpu_name(at::Device /*gpu*/) {
  return "an emulated GPU";
}
std::string gpu_pci_bus_id(at::Device /*gpu*/) {
  return "";
}
int64_t free_gpu_memory(at::Device /*gpu*/) {
  return int64_t{1} << 30;
}
void synchronize(at::Device /*device*/) {}

void upload(const at::Tensor& host, at::Tensor& device_tensor) {
  TORCH_CHECK(host.is_cpu() && host.is_contiguous(), "upload: a contiguous tensor of the CPU was expected");
  test::queue_copy(host, device_tensor);
}

std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors) {
  if (tensors.empty() || tensors[0].is_cpu()) return tensors;
  for (at::Tensor& tensor : tensors) {
    at::Tensor copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
    test::queue_copy(tensor, copy);
    tensor = copy;
  }
  test::count_wait();
  return tensors;
}

namespace {

class EmulatedEvent final : public GpuEvent {
 public:
  void wait() override { test::count_wait(); }
  double seconds_since(const GpuEvent& earlier) const override {
    return std::chrono::duration<double>(at_ - static_cast<const EmulatedEvent&>(earlier).at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

}  // namespace

std::unique_ptr<GpuEvent> record_event(at::Device /*gpu*/) {
  return std::make_unique<EmulatedEvent>();
}

PendingCopy copy_to_host_async(const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.is_cpu(), "copy_to_host_async: a tensor of a GPU was expected");
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  test::queue_copy(tensor, copy);
  return {copy, record_event(tensor.device())};
}

namespace {

bool overlap = true;
test::Records records = test::Records::everything;
int64_t free_graphs = std::numeric_limits<int64_t>::max();  // how many more graphs the memory holds
int64_t graphs_after_release = 0;                           // how many more after release_unused_memory

std::map<Graph::Pool, std::set<class EmulatedGraph*>> graphs;

class EmulatedGraph final : public Graph {
 public:
  explicit EmulatedGraph(Pool pool) : pool_graphs_(graphs[pool]) { pool_graphs_.insert(this); }
  ~EmulatedGraph() override { pool_graphs_.erase(this); }

  // On a GPU the graphs of a pool share memory, so a replay may overwrite the memory of all others.
  void replay() override {
    ++test::launches;
    for (const EmulatedGraph* other : pool_graphs_) {
      if (other == this) continue;
      for (const auto& [begin, bytes] : other->content.memory) test::fill_with_nan(begin.get(), bytes);
    }
    for (const auto& step : content.steps) step();
  }

  test::Recording content;

 private:
  std::set<EmulatedGraph*>& pool_graphs_;
};

}  // namespace

bool kernels_overlap() {
  return overlap;
}
void let_kernels_overlap(bool allowed) {
  overlap = allowed;
}

void release_unused_memory(at::Device /*gpu*/) {
  free_graphs += std::exchange(graphs_after_release, 0);
}

std::unique_ptr<Graph> Graph::capture(at::Device /*gpu*/, Pool pool, const std::function<void()>& body) {
  auto graph = std::make_unique<EmulatedGraph>(pool);
  test::recording = &graph->content;
  try {
    body();
  } catch (...) {
    test::recording = nullptr;
    throw;
  }
  test::recording = nullptr;
  TORCH_CHECK(records != test::Records::nothing, "this GPU records nothing");
  TORCH_CHECK(records == test::Records::everything || !overlap, "this GPU records no kernels that overlap");
  // As on a GPU, where a graph is instantiated after it was recorded.
  TORCH_CHECK_WITH(OutOfMemoryError, free_graphs > 0, "no memory is left for a graph");
  --free_graphs;
  return graph;
}

}  // namespace clover::kernels

void clover::test::leave_room_for_graphs(int64_t max_graphs, int64_t after_release) {
  clover::kernels::free_graphs = max_graphs;
  clover::kernels::graphs_after_release = after_release;
}

void clover::test::record(Records what) {
  clover::kernels::overlap = true;
  clover::kernels::records = what;
}

namespace clover::kernels {

bool on_gpu(const char* op, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), op, ": its first tensor is undefined.");
  return !tensor.is_cpu();
}

Stream current_stream(const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.is_cpu(), "a tensor of the CPU has no stream");
  return nullptr;
}

}  // namespace clover::kernels
