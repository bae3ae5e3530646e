#pragma once

#include "kernels/attention/attention_loops.h"
#include "kernels/cpu/lanes.h"

// Online softmax, updated after each block of keys (block_keys, 64 positions); a split is four blocks
// (split_keys). F32x8 and F32x16 are vectors of 8 and 16 floats, F32xN the longer one that the CPU has
// (kernels/cpu/lanes.h).
namespace clover::kernels::cpu {
namespace {

/// The softmax over some keys, before division by exp_sum.
struct Softmax {
  float* sum;     // [d] values weighted by exp(score - largest)
  float largest;  // score; -inf without keys
  float exp_sum;  // sum of the weights

  void clear(int64_t d) {
    std::memset(sum, 0, d * sizeof(float));
    largest = -__builtin_inff();
    exp_sum = 0;
  }
};

/// One query head of one row: its softmax over the present split of keys, and over those before.
struct Query : Softmax {
  const float* q;  // [d]
  float* score;    // [block_keys] scores of the present block of keys, then their weights
  Softmax before;  // over the splits before the present one
};

/// Adds the lanes of x to `sum`, for 16 lanes first the lower eight and then the upper eight, so that both
/// lengths of vectors yield the same bits.
CLOVER_INLINE F32x8 add_halves_in_turn(F32x8 sum, F32x8 x) {
  return sum + x;
}
CLOVER_INLINE F32x8 add_halves_in_turn(F32x8 sum, F32x16 x) {
  return sum + lower_half(x) + upper_half(x);
}

/// The largest of query.largest and the scores of a block of `count` keys. Sets the scores beyond the last
/// key, up to a whole vector, to -inf.
float largest_of(const Query& query, int64_t count) {
  constexpr int64_t step = lane_count<F32xN>;
  for (int64_t j = count; j % step != 0; ++j) query.score[j] = -__builtin_inff();
  F32xN best = broadcast<F32xN>(query.largest);
  for (int64_t j = 0; j < count; j += step) best = larger(load_lanes<F32xN>(query.score + j), best);
  return max_lane(best);
}

/// Turns the scores of a block of `count` keys into weights exp(score - largest). Multiplies query.sum and
/// query.exp_sum, which hold the blocks before, by exp(query.largest - largest), so that they are relative to
/// `largest` too; then adds the weights to exp_sum. The weighted values are added to query.sum later
/// (add_values_of_all in attention_block.h).
/// `largest`: largest_of the block.
void merge_block(Query& query, int64_t count, int64_t d, float largest) {
  constexpr int64_t step = lane_count<F32xN>;
  F32x8 exp_sum{};
  int64_t j = 0;
  for (; j + 3 * step < count; j += 4 * step) {
    F32xN weights[4];
    unroll<4>([&](auto k)
                  CLOVER_INLINED { weights[k] = load_lanes<F32xN>(query.score + j + k * step) - largest; });
    exp_lanes(weights);
    unroll<4>([&](auto k) CLOVER_INLINED {
      store_lanes(query.score + j + k * step, weights[k]);
      exp_sum = add_halves_in_turn(exp_sum, weights[k]);
    });
  }
  for (; j < count; j += step) {
    const F32xN weight = exp_lanes(load_lanes<F32xN>(query.score + j) - largest);
    store_lanes(query.score + j, weight);
    exp_sum = add_halves_in_turn(exp_sum, weight);
  }
  if (query.largest == largest && largest > -__builtin_inff()) {  // the common case: no need to multiply by 1
    query.exp_sum += sum8(exp_sum);
    return;
  }
  const float old_scale = exp_lanes(splat(query.largest - largest))[0];
  query.exp_sum = query.exp_sum * old_scale + sum8(exp_sum);
  query.largest = largest;
  for (int64_t i = 0; i < d; i += 8) store8(query.sum + i, load8(query.sum + i) * old_scale);
}

/// The same for `query_count` queries, with key_counts[i] keys for query i. Two loops, so that the processor
/// can overlap the work of several queries.
void merge_block(Query* const* queries, const int64_t* key_counts, int64_t query_count, int64_t d) {
  float largest[attention_group_queries];
  for (int64_t i = 0; i < query_count; ++i) largest[i] = largest_of(*queries[i], key_counts[i]);
  for (int64_t i = 0; i < query_count; ++i) merge_block(*queries[i], key_counts[i], d, largest[i]);
}

/// Merges the softmax over later keys, `next`, into `x`.
void merge_splits(Softmax& x, const Softmax& next, int64_t d) {
  const float new_largest = next.largest > x.largest ? next.largest : x.largest;
  // Without keys the largest score is -inf, and -inf - (-inf) would be NaN.
  const float old_scale = x.largest == new_largest ? 1.0f : exp_lanes(splat(x.largest - new_largest))[0];
  const float new_scale =
      next.largest == new_largest ? 1.0f : exp_lanes(splat(next.largest - new_largest))[0];
  for (int64_t i = 0; i < d; i += 8)
    store8(x.sum + i, load8(x.sum + i) * old_scale + load8(next.sum + i) * new_scale);
  x.exp_sum = x.exp_sum * old_scale + next.exp_sum * new_scale;
  x.largest = new_largest;
}

}  // namespace
}  // namespace clover::kernels::cpu
