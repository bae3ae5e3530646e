#include <c10/util/Exception.h>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/graph.h"
#include "kernels/gpu/overlap.h"

// A build without CUDA kernels: every CUDA twin says so.
namespace clover::kernels {

const bool has_cuda_kernels = false;

int64_t gpu_count() {
  return 0;
}
at::Device open_gpu(int64_t /*index*/) {
  TORCH_CHECK(
      false,
      "This program was built without CUDA kernels (scripts/setup --cuda builds them); use --device cpu.");
}
bool uses_warpgroup_products(at::Device /*gpu*/) {
  return false;
}
bool kernels_overlap() {
  return false;
}
void let_kernels_overlap(bool /*may*/) {}
std::string gpu_name(at::Device /*gpu*/) {
  return "";
}
int64_t free_gpu_memory(at::Device /*gpu*/) {
  return 0;
}
void release_unused_memory(at::Device /*gpu*/) {}
void upload(const at::Tensor& host, at::Tensor& there) {
  there.copy_(host);
}
std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors) {
  return tensors;
}
std::unique_ptr<Moment> mark(at::Device /*gpu*/) {
  TORCH_CHECK(false, "mark: this program was built without CUDA kernels.");
}
Arriving begin_to_host(const at::Tensor& /*tensor*/) {
  TORCH_CHECK(false, "begin_to_host: this program was built without CUDA kernels.");
}
void wait_for(at::Device /*device*/) {}

std::unique_ptr<Graph> Graph::record(at::Device /*gpu*/, Pool /*pool*/,
                                     const std::function<void()>& /*body*/) {
  TORCH_CHECK(false, "This program was built without CUDA kernels: no graphs can be recorded.");
}

}  // namespace clover::kernels

namespace clover::kernels::cuda {
namespace {

[[noreturn]] void missing(const char* function) {
  TORCH_CHECK(false, function, ": this program was built without CUDA kernels; use the device cpu.");
}

}  // namespace

void linear(const LinearInput&, const PackedWeight&, const at::Tensor&, at::Tensor&, bool) {
  missing("linear");
}
at::Tensor linear_arg_max(const LinearInput&, const PackedWeight&) {
  missing("linear_arg_max");
}
void linear_silu_mul(const LinearInput&, const PackedWeight&, at::Tensor&) {
  missing("linear_silu_mul");
}
void linear_rope_and_store(const LinearInput&, const QkvWeight&, const at::Tensor&, const at::Tensor&,
                           const at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&) {
  missing("linear_rope_and_store");
}
void rows(const PackedWeight&, const at::Tensor&, at::Tensor&) {
  missing("rows");
}
at::Tensor plan_attention(const AttentionRows&, int64_t, const at::Tensor&) {
  missing("plan_attention");
}
void tree_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionRows&, double,
                    at::Tensor&) {
  missing("tree_attention");
}
void edit_logits(at::Tensor&, const at::Tensor&, const at::Tensor&) {
  missing("edit_logits");
}
void move_rows(at::Tensor&, const at::Tensor&) {
  missing("move_rows");
}
void rms_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double,
              at::Tensor&) {
  missing("rms_norm");
}
void rms_norm_of(const PackedWeight&, const at::Tensor&, const at::Tensor&, double, at::Tensor&) {
  missing("rms_norm_of");
}
void add_silu_(at::Tensor&, const at::Tensor&) {
  missing("add_silu_");
}
void add_gated(const at::Tensor&, const at::Tensor&, const at::Tensor&, const KeyValues&, int64_t, double,
               GateActivation, at::Tensor&, at::Tensor&) {
  missing("add_gated");
}
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor&, int64_t) {
  missing("top_k");
}
at::Tensor arg_max(const at::Tensor&) {
  missing("arg_max");
}
at::Tensor log_sum_exp(const at::Tensor&) {
  missing("log_sum_exp");
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor&, int64_t,
                                                                 const at::Tensor&) {
  missing("top_k_and_log_sum");
}
at::Tensor sample(const at::Tensor&, const at::Tensor&) {
  missing("sample");
}

void grow_level(const at::Tensor&, const at::Tensor&, const at::Tensor&, const LevelRule&, int64_t,
                GrowingTrees&) {
  missing("grow_level");
}
void follow_trees(const JudgedTrees&, FollowedTrees&) {
  missing("follow_trees");
}

}  // namespace clover::kernels::cuda
