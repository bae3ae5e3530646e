#include "kernels/attention/attention.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"

namespace clover::kernels {
namespace {

void check_rows(const AttentionRows& rows, int64_t count, at::Device device) {
  check_tensor("tree_attention", "sequence", rows.sequence, {count}, at::kInt, device);
  check_tensor("tree_attention", "contiguous", rows.contiguous, {count}, at::kInt, device);
  check_tensor("tree_attention", "path_begin", rows.path_begin, {count + 1}, at::kInt, device);
  check_tensor("tree_attention", "path", rows.path, {-1}, at::kInt, device);
  check_tensor("tree_attention", "page_table", rows.page_table, {-1, -1}, at::kInt, device);
}

}  // namespace

void check_cache(const char* function, const at::Tensor& k, const at::Tensor& v, at::Device device) {
  check_tensor(function, "k", k, {-1, -1, -1, -1}, std::nullopt, device);
  check_tensor(function, "v", v, k.sizes(), k.scalar_type(), device);
  TORCH_CHECK(k.size(1) >= 1 && k.size(2) >= 1, function, ": k has shape ", k.sizes(),
              ", expected at least one head and one row a page.");
  TORCH_CHECK(k.size(3) >= 8 && k.size(3) <= largest_head_size && k.size(3) % 8 == 0, function,
              ": the head size is ", k.size(3), ", expected a multiple of 8 from 8 to ", largest_head_size,
              ".");
}

at::Tensor plan_attention(const AttentionRows& rows, int64_t query_heads, const at::Tensor& k) {
  if (!on_cuda("plan_attention", k) || rows.sequence.size(0) == 0) return {};
  check_cache("plan_attention", k, k, k.device());
  check_rows(rows, rows.sequence.size(0), k.device());
  return cuda::plan_attention(rows, query_heads, k);
}

void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionRows& rows,
                    double scale, at::Tensor& out) {
  const bool cuda = on_cuda("tree_attention", q);
  const at::Device device = q.device();
  check_cache("tree_attention", k, v, device);
  check_tensor("tree_attention", "q", q, {-1, -1, k.size(3)}, at::kFloat, device);
  TORCH_CHECK(q.size(1) >= 1 && q.size(1) % k.size(1) == 0, "tree_attention: ", q.size(1),
              " query heads are not a multiple of ", k.size(1), " key heads.");
  check_tensor("tree_attention", "out", out, {q.size(0), q.size(1) * q.size(2)}, std::nullopt, device);
  check_rows(rows, q.size(0), device);
  if (q.size(0) == 0) return;
  (cuda ? cuda::tree_attention : cpu::tree_attention)(q, k, v, rows, scale, out);
}

}  // namespace clover::kernels
