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

float* scratch(int64_t floats) {
  thread_local std::vector<float> storage;
  return grown(storage, floats);
}

int64_t longest_path(const AttentionCall& call) {
  int64_t longest = 0;
  for (int64_t r = 0; r < call.rows; ++r)
    longest = std::max<int64_t>(longest, call.contiguous[r] + call.path_begin[r + 1] - call.path_begin[r]);
  return longest;
}

float* partial_results(const AttentionCall& call, int64_t splits) {
  thread_local std::vector<float> storage;
  return grown(storage, call.rows * call.query_heads * splits * (call.head_size + 2));
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
  const int64_t whole = static_cast<int64_t>(groups.size()) * call.kv_heads;
  const int64_t most_threads = threads();
  // Few rows with many keys are shared out by their keys, or the last item would keep the others waiting.
  AttentionSplits splits{nullptr, 1};
  if (most_threads > 1 && whole < 4 * most_threads) splits.count = attention_splits(longest_path(call));
  if (splits.count > 1) splits.partials = partial_results(call, splits.count);
  const int64_t items = whole * splits.count;
  // Longest rows last in a prefill, so items are handed out one by one, from the end.
  const auto item = [&](int64_t taken) -> AttentionItem {
    const int64_t number = items - 1 - taken, part = number / splits.count;
    const RowGroup& mine = group[part / call.kv_heads];
    return {mine.first, mine.rows, part % call.kv_heads, number % splits.count};
  };
  const int64_t sharing = std::min(most_threads, items);
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    float* space = scratch(attention_scratch(call.head_size) + attention_tile_scratch(call.head_size));
    for (int64_t taken = next.fetch_add(1), then; taken < items; taken = then) {
      // The next item is taken ahead, to ask for its keys, while there are enough for every thread.
      const bool ahead = sharing == 1 || next.load() + sharing < items;
      then = ahead ? next.fetch_add(1) : items;
      const AttentionItem upcoming = item(then < items ? then : taken);
      loop.group(call, item(taken), then < items ? &upcoming : nullptr, splits, space);
      if (!ahead) then = next.fetch_add(1);
    }
  };
  if (sharing == 1) return work();
  parallel_parts(sharing, [&](int64_t) { work(); });
  if (splits.partials == nullptr) return;
  loop.merge(call, splits, 0, call.rows * call.query_heads, scratch(attention_scratch(call.head_size)));
}

}  // namespace clover::kernels
