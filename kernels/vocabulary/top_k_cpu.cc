#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/rows.h"
#include "kernels/vocabulary/logit_loops.h"
#include "kernels/vocabulary/row_top_k.h"
#include "kernels/vocabulary/top_k.h"

namespace clover::kernels {
namespace cpu {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

bool better(const Ranked& a, const Ranked& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

/// Elements of a block. row_top_k looks only at blocks whose maximum is among the k largest, so n elements
/// should make many more than k blocks.
int64_t block_for(int64_t n, int64_t k) {
  int64_t block = 64;
  while (block > 8 && block * 8 * k > n) block /= 2;
  return block;
}

/// The k-th largest of the blocks' maxima: at least k elements are not below it.
float lower_bound(const std::vector<float>& maxima, int64_t k) {
  if (k > static_cast<int64_t>(maxima.size())) return minus_infinity;
  thread_local std::vector<float> ordered;
  ordered = maxima;
  std::nth_element(ordered.begin(), ordered.begin() + (k - 1), ordered.end(), std::greater<float>());
  return ordered[k - 1];
}

float row_log_sum_exp(const float* row, int64_t width) {
  const LogitLoops& loop = loops<LogitLoops>();
  const float largest = loop.maximum(row, width);
  // If the maximum is infinite, it is the result (inf - inf would be NaN).
  if (std::isinf(largest)) return largest;
  return static_cast<float>(largest + std::log(static_cast<double>(loop.sum_exp(row, width, largest))));
}

}  // namespace

void row_top_k(const float* x, int64_t n, int64_t k, std::vector<Ranked>& out) {
  const LogitLoops& loop = loops<LogitLoops>();
  const int64_t block = block_for(n, k);
  thread_local std::vector<float> maxima;
  maxima.resize((n + block - 1) / block);
  loop.block_maxima(x, n, block, maxima.data());
  const float bound = lower_bound(maxima, k);
  out.clear();
  for (size_t b = 0; b < maxima.size(); ++b) {
    if (maxima[b] < bound) continue;
    const int64_t begin = static_cast<int64_t>(b) * block, end = std::min(n, begin + block);
    for (int64_t i = begin; i < end; ++i) {
      const float value = std::isnan(x[i]) ? minus_infinity : x[i];
      if (value >= bound) out.push_back({value, i});
    }
  }
  if (static_cast<int64_t>(out.size()) > k) {
    std::nth_element(out.begin(), out.begin() + (k - 1), out.end(), better);
    out.resize(k);
  }
  std::sort(out.begin(), out.end(), better);
}

int64_t row_arg_max(const float* x, int64_t n) {
  const LogitLoops& loop = loops<LogitLoops>();
  const float best = loop.maximum(x, n);
  return best == minus_infinity ? -1 : loop.first_equal(x, n, best);
}

}  // namespace cpu

void run_on_cpu(const TopKCall& call) {
  cpu::for_rows(call.rows, call.width, [&](int64_t begin, int64_t end) {
    thread_local std::vector<cpu::Ranked> best;
    for (int64_t r = begin; r < end; ++r) {
      const float* row = call.logits + r * call.width;
      cpu::row_top_k(row, call.width, call.k, best);
      for (int64_t i = 0; i < call.k; ++i) {
        const int64_t index = best[i].index;
        call.values[r * call.k + i] = best[i].value;
        call.indices[r * call.k + i] = call.token_map != nullptr ? call.token_map[index] : index;
      }
      if (call.log_sums != nullptr) call.log_sums[r] = cpu::row_log_sum_exp(row, call.width);
    }
  });
}

void run_on_cpu(const ArgMaxCall& call) {
  cpu::for_rows(call.rows, call.width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      call.indices[r] = cpu::row_arg_max(call.logits + r * call.width, call.width);
  });
}

void run_on_cpu(const LogSumCall& call) {
  cpu::for_rows(call.rows, call.width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      call.out[r] = cpu::row_log_sum_exp(call.logits + r * call.width, call.width);
  });
}

}  // namespace clover::kernels
