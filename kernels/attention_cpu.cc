#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/cpu_loops.h"

namespace clover::kernels::cpu {
namespace {

static_assert(attention_keys == attention_block && attention_group_queries == most_queries_a_key);

/// Successive rows of one sequence, which share the conversion of their keys and values.
struct RowGroup {
  int64_t first, rows;
};

void find_groups(const int32_t* sequence, int64_t rows, int64_t most, std::vector<RowGroup>& groups) {
  groups.clear();
  for (int64_t r = 0; r < rows; ++r) {
    const bool joins =
        !groups.empty() && sequence[groups.back().first] == sequence[r] && groups.back().rows < most;
    if (joins) {
      ++groups.back().rows;
    } else {
      groups.push_back({r, 1});
    }
  }
}

AttentionCall make_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const AttentionRows& rows, double scale, at::Tensor& out) {
  AttentionCall call{};
  call.q = q.const_data_ptr<float>();
  call.k = k.const_data_ptr();
  call.v = v.const_data_ptr();
  call.out = out.mutable_data_ptr();
  call.sequence = rows.sequence.const_data_ptr<int32_t>();
  call.contiguous = rows.contiguous.const_data_ptr<int32_t>();
  call.path_begin = rows.path_begin.const_data_ptr<int32_t>();
  call.path = rows.path.const_data_ptr<int32_t>();
  call.page_table = rows.page_table.const_data_ptr<int32_t>();
  call.query_heads = q.size(1);
  call.kv_heads = k.size(2);
  call.head_size = k.size(3);
  call.page_size = k.size(1);
  call.pages_per_sequence = rows.page_table.size(1);
  call.cache = element_of(k.scalar_type());
  call.result = element_of(out.scalar_type());
  call.scale = static_cast<float>(scale);
  return call;
}

float* scratch(int64_t floats) {
  thread_local std::vector<float> storage;
  if (static_cast<int64_t>(storage.size()) < floats) storage.resize(floats);
  return storage.data();
}

}  // namespace

void rope_and_store(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                    const at::Tensor& slots, at::Tensor& q, at::Tensor& k, at::Tensor& v) {
  RopeCall call{};
  call.qkv = qkv.const_data_ptr<float>();
  call.cos = cos.const_data_ptr<float>();
  call.sin = sin.const_data_ptr<float>();
  call.slots = slots.const_data_ptr<int64_t>();
  call.q = q.mutable_data_ptr<float>();
  call.k = k.mutable_data_ptr();
  call.v = v.mutable_data_ptr();
  call.query_heads = q.size(1);
  call.kv_heads = k.size(2);
  call.head_size = k.size(3);
  call.cache = element_of(k.scalar_type());
  const CpuBodies& body = bodies();
  for_rows(qkv.size(0), qkv.size(1), [&](int64_t begin, int64_t end) { body.rope(call, begin, end); });
}

void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionRows& rows,
                    double scale, at::Tensor& out) {
  const CpuBodies& body = bodies();
  const AttentionCall call = make_call(q, k, v, rows, scale, out);
  const int64_t heads = call.query_heads / call.kv_heads;
  TORCH_CHECK(heads <= attention_group_queries, "tree_attention: ", heads,
              " query heads a key head, expected at most ", attention_group_queries, ".");
  thread_local std::vector<RowGroup> groups;
  find_groups(call.sequence, q.size(0), attention_group_queries / heads, groups);
  const RowGroup* group = groups.data();
  const int64_t items = static_cast<int64_t>(groups.size()) * call.kv_heads;
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    float* space = scratch(attention_scratch(call.head_size));
    // Longest rows last in a prefill, so items are handed out one by one, from the end.
    for (int64_t taken; (taken = next.fetch_add(1)) < items;) {
      const int64_t item = items - 1 - taken;
      const RowGroup& mine = group[item / call.kv_heads];
      body.attention_group(call, mine.first, mine.rows, item % call.kv_heads, space);
    }
  };
  const int64_t threads = at::in_parallel_region() ? 1 : std::min<int64_t>(at::get_num_threads(), items);
  if (threads == 1) return work();
#pragma omp parallel num_threads(threads)
  work();
}

}  // namespace clover::kernels::cpu
