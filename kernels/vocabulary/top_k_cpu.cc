#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/cpu/cpu_loops.h"
#include "kernels/vocabulary/row_top_k.h"

namespace clover::kernels::cpu {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

bool better(const Ranked& a, const Ranked& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

/// Elements that share one maximum: so many blocks that the k-th largest maximum lets few elements by.
int64_t block_for(int64_t n, int64_t k) {
  int64_t block = 64;
  while (block > 8 && block * 8 * k > n) block /= 2;
  return block;
}

/// A value that at least k elements reach: the k-th largest of the blocks' maxima.
float lower_bound(const std::vector<float>& maxima, int64_t k) {
  if (k > static_cast<int64_t>(maxima.size())) return minus_infinity;
  thread_local std::vector<float> ordered;
  ordered = maxima;
  std::nth_element(ordered.begin(), ordered.begin() + (k - 1), ordered.end(), std::greater<float>());
  return ordered[k - 1];
}

}  // namespace

void row_top_k(const float* x, int64_t n, int64_t k, std::vector<Ranked>& out) {
  const CpuBodies& body = bodies();
  const int64_t block = block_for(n, k);
  thread_local std::vector<float> maxima;
  maxima.resize((n + block - 1) / block);
  body.block_maxima(x, n, block, maxima.data());
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
  const CpuBodies& body = bodies();
  const float best = body.maximum(x, n);
  return best == minus_infinity ? -1 : body.first_equal(x, n, best);
}

std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k) {
  const int64_t rows = logits.size(0), width = logits.size(1);
  at::Tensor values = at::empty({rows, k}, logits.options()),
             indices = at::empty({rows, k}, logits.options().dtype(at::kLong));
  const float* from = logits.const_data_ptr<float>();
  float* value = values.mutable_data_ptr<float>();
  int64_t* index = indices.mutable_data_ptr<int64_t>();
  for_rows(rows, width, [&](int64_t begin, int64_t end) {
    thread_local std::vector<Ranked> best;
    for (int64_t r = begin; r < end; ++r) {
      row_top_k(from + r * width, width, k, best);
      for (int64_t i = 0; i < k; ++i) {
        value[r * k + i] = best[i].value;
        index[r * k + i] = best[i].index;
      }
    }
  });
  return {values, indices};
}

at::Tensor arg_max(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), width = logits.size(1);
  at::Tensor indices = at::empty({rows}, logits.options().dtype(at::kLong));
  const float* from = logits.const_data_ptr<float>();
  int64_t* index = indices.mutable_data_ptr<int64_t>();
  for_rows(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) index[r] = row_arg_max(from + r * width, width);
  });
  return indices;
}

at::Tensor log_sum_exp(const at::Tensor& logits) {
  const CpuBodies& body = bodies();
  const int64_t rows = logits.size(0), width = logits.size(1);
  at::Tensor out = at::empty({rows}, logits.options());
  const float* from = logits.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for_rows(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = from + r * width;
      const float largest = body.maximum(row, width);
      // An infinite maximum is the answer itself (and its difference with itself is not a number).
      to[r] = std::isinf(largest)
                  ? largest
                  : static_cast<float>(largest +
                                       std::log(static_cast<double>(body.sum_exp(row, width, largest))));
    }
  });
  return out;
}

}  // namespace clover::kernels::cpu
