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

// The one GPU of programs that run without any: the stand-in device, with the CUDA kernels emulated.  These
// definitions take the place of the library's.
namespace clover::kernels {

const bool has_cuda_kernels = true;

int64_t gpu_count() {
  return 1;
}
at::Device open_gpu(int64_t index) {
  TORCH_CHECK(index == 0, "GPU ", index, " does not exist, expected 0 to 0.");
  const at::Device gpu = test::stand_in_device();
  uses_warpgroup_products(gpu);  // to be known before a graph is recorded
  return gpu;
}
std::string gpu_name(at::Device /*gpu*/) {
  return "an emulated GPU";
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
int64_t room_for_graphs = std::numeric_limits<int64_t>::max(), unused_room = 0;

std::map<Graph::Pool, std::set<class EmulatedGraph*>> graphs;

class EmulatedGraph final : public Graph {
 public:
  explicit EmulatedGraph(Pool pool) : others_(graphs[pool]) { others_.insert(this); }
  ~EmulatedGraph() override { others_.erase(this); }

  // On a GPU the memory of others may be its own, too.
  void replay() override {
    ++test::launches;
    for (const EmulatedGraph* other : others_) {
      if (other == this) continue;
      for (const auto& [begin, bytes] : other->held.memory) test::spoil(begin.get(), bytes);
    }
    for (const auto& step : held.steps) step();
  }

  test::Recording held;

 private:
  std::set<EmulatedGraph*>& others_;
};

}  // namespace

bool kernels_overlap() {
  return overlap;
}
void let_kernels_overlap(bool may) {
  overlap = may;
}

void release_unused_memory(at::Device /*gpu*/) {
  room_for_graphs += std::exchange(unused_room, 0);
}

std::unique_ptr<Graph> Graph::capture(at::Device /*gpu*/, Pool pool, const std::function<void()>& body) {
  auto graph = std::make_unique<EmulatedGraph>(pool);
  test::recording = &graph->held;
  try {
    body();
  } catch (...) {
    test::recording = nullptr;
    throw;
  }
  test::recording = nullptr;
  TORCH_CHECK(records != test::Records::nothing, "this GPU records nothing");
  TORCH_CHECK(records == test::Records::everything || !overlap, "this GPU records no kernels that overlap");
  // The last thing a graph needs memory for is its own making.
  TORCH_CHECK_WITH(OutOfMemoryError, room_for_graphs > 0, "no memory is left for a graph");
  --room_for_graphs;
  return graph;
}

}  // namespace clover::kernels

void clover::test::leave_room_for_graphs(int64_t most, int64_t after_release) {
  clover::kernels::room_for_graphs = most;
  clover::kernels::unused_room = after_release;
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
