#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/attention/attention_loops.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/rows.h"

namespace clover::kernels {
using namespace cpu;
namespace {

/// Successive rows of one sequence, computed together so that their keys and values are converted to fp32
/// once.
struct RowGroup {
  int64_t first, rows;
};

/// Cuts the rows into groups of at most `max_rows` rows.
void find_groups(const int32_t* sequence, int64_t rows, int64_t max_rows, std::vector<RowGroup>& groups) {
  groups.clear();
  for (int64_t r = 0; r < rows; ++r) {
    const bool joins =
        !groups.empty() && sequence[groups.back().first] == sequence[r] && groups.back().rows < max_rows;
    if (joins) {
      ++groups.back().rows;
    } else {
      groups.push_back({r, 1});
    }
  }
}

float* scratch(int64_t floats) {
  thread_local std::vector<float> storage;
  return grow_scratch(storage, floats);
}

int64_t longest_path(const AttentionCall& call) {
  int64_t longest = 0;
  for (int64_t r = 0; r < call.rows; ++r)
    longest = std::max<int64_t>(longest, call.contiguous[r] + call.path_begin[r + 1] - call.path_begin[r]);
  return longest;
}

float* partial_results(const AttentionCall& call, int64_t splits) {
  thread_local std::vector<float> storage;
  return grow_scratch(storage, call.rows * call.query_heads * splits * (call.head_size + 2));
}

}  // namespace

void run_on_cpu(const AttentionCall& call) {
  const AttentionLoops& loop = loops<AttentionLoops>();
  const int64_t heads = call.query_heads / call.kv_heads;
  TORCH_CHECK(heads <= attention_group_queries, "tree_attention: ", heads,
              " query heads a key head, expected at most ", attention_group_queries, ".");
  thread_local std::vector<RowGroup> groups;
  find_groups(call.sequence, call.rows, attention_group_queries / heads, groups);
  const RowGroup* group = groups.data();
  const int64_t unsplit_items = static_cast<int64_t>(groups.size()) * call.kv_heads;
  const int64_t thread_count = threads();
  // Few items are split by their keys, so that all threads end at about the same time.
  AttentionSplits splits{nullptr, 1};
  if (thread_count > 1 && unsplit_items < 4 * thread_count)
    splits.count = attention_splits(longest_path(call));
  if (splits.count > 1) splits.partials = partial_results(call, splits.count);
  const int64_t items = unsplit_items * splits.count;
  // Items are handed out one by one, the last ones first: in a prefill the last rows have the most keys.
  const auto item = [&](int64_t taken) -> AttentionItem {
    const int64_t number = items - 1 - taken, part = number / splits.count;
    const RowGroup& row_group = group[part / call.kv_heads];
    return {row_group.first, row_group.rows, part % call.kv_heads, number % splits.count};
  };
  const int64_t worker_count = std::min(thread_count, items);
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    float* space = scratch(attention_scratch(call.head_size) + attention_tile_scratch(call.head_size));
    for (int64_t taken = next.fetch_add(1), following; taken < items; taken = following) {
      // While enough items are left for every thread, the following item is taken before this one is
      // computed, so that its keys can be prefetched.
      const bool take_early = worker_count == 1 || next.load() + worker_count < items;
      following = take_early ? next.fetch_add(1) : items;
      const AttentionItem upcoming = item(following < items ? following : taken);
      loop.attend(call, item(taken), following < items ? &upcoming : nullptr, splits, space);
      if (!take_early) following = next.fetch_add(1);
    }
  };
  if (worker_count == 1) return work();
  parallel_parts(worker_count, [&](int64_t) { work(); });
  if (splits.partials == nullptr) return;
  loop.merge(call, splits, 0, call.rows * call.query_heads, scratch(attention_scratch(call.head_size)));
}

}  // namespace clover::kernels
