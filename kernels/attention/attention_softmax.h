#pragma once

#include "kernels/attention/attention_loops.h"
#include "kernels/cpu/lanes.h"

// Online softmax: it is updated block of keys by block of keys.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t block_size = attention_keys;

/// A softmax over some keys: their values weighted by exp(score - largest), and the weights' sum.
struct Softmax {
  float* sum;  // [d]
  float largest;
  float mass;

  void clear(int64_t d) {
    std::memset(sum, 0, d * sizeof(float));
    largest = -__builtin_inff();
    mass = 0;
  }
};

/// One query head of one row: its softmax over the present split of keys, and over those before.
struct Query : Softmax {
  const float* q;  // [d]
  float* score;    // [block_size]
  Softmax before;
};

CLOVER_INLINE F8 add_halves_in_turn(F8 sum, F8 x) {
  return sum + x;
}
CLOVER_INLINE F8 add_halves_in_turn(F8 sum, F16 x) {
  return sum + lower_half(x) + upper_half(x);
}

/// The largest of a block's scores and of those before. The scores behind the last key, up to a whole vector,
/// become -inf.
float largest_of(const Query& query, int64_t count) {
  constexpr int64_t step = lane_count<Wide>;
  for (int64_t j = count; j % step != 0; ++j) query.score[j] = -__builtin_inff();
  Wide best = repeat<Wide>(query.largest);
  for (int64_t j = 0; j < count; j += step) best = larger(load_lanes<Wide>(query.score + j), best);
  return max_lane(best);
}

/// Turns a block's scores into weights and rescales what came before.
void merge_block(Query& query, int64_t count, int64_t d, float largest) {
  constexpr int64_t step = lane_count<Wide>;
  F8 mass{};
  int64_t j = 0;
  for (; j + 3 * step < count; j += 4 * step) {
    Wide weights[4];
    each<4>([&](auto k)
                CLOVER_INLINED { weights[k] = load_lanes<Wide>(query.score + j + k * step) - largest; });
    exp_lanes(weights);
    each<4>([&](auto k) CLOVER_INLINED {
      store_lanes(query.score + j + k * step, weights[k]);
      mass = add_halves_in_turn(mass, weights[k]);
    });
  }
  for (; j < count; j += step) {
    const Wide weight = exp_lanes(load_lanes<Wide>(query.score + j) - largest);
    store_lanes(query.score + j, weight);
    mass = add_halves_in_turn(mass, weight);
  }
  if (query.largest == largest && largest > -__builtin_inff()) {  // as most often: all would be scaled by 1
    query.mass += sum8(mass);
    return;
  }
  const float shrink = exp_lanes(splat(query.largest - largest))[0];
  query.mass = query.mass * shrink + sum8(mass);
  query.largest = largest;
  for (int64_t i = 0; i < d; i += 8) store8(query.sum + i, load8(query.sum + i) * shrink);
}

/// The same for all queries, interleaved so that one fills the latencies of another.
void merge_block(Query* const* queries, const int64_t* count, int64_t total, int64_t d) {
  float largest[attention_group_queries];
  for (int64_t i = 0; i < total; ++i) largest[i] = largest_of(*queries[i], count[i]);
  for (int64_t i = 0; i < total; ++i) merge_block(*queries[i], count[i], d, largest[i]);
}

/// Adds the softmax over later keys to `x`.
void merge_splits(Softmax& x, const Softmax& next, int64_t d) {
  const float top = next.largest > x.largest ? next.largest : x.largest;
  // Without keys the largest is -inf, whose difference with itself is not a number.
  const float shrink = x.largest == top ? 1.0f : exp_lanes(splat(x.largest - top))[0];
  const float next_shrink = next.largest == top ? 1.0f : exp_lanes(splat(next.largest - top))[0];
  for (int64_t i = 0; i < d; i += 8)
    store8(x.sum + i, load8(x.sum + i) * shrink + load8(next.sum + i) * next_shrink);
  x.mass = x.mass * shrink + next.mass * next_shrink;
  x.largest = top;
}

}  // namespace
}  // namespace clover::kernels::cpu
