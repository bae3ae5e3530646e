#include "kernels/vocabulary/ranking.cuh"
#include "kernels/vocabulary/sample.h"

// One block for each row. As on the CPU (sample_cpu.cc), probabilities are integers in units of 2^-40 times
// the largest one, so that sums do not depend on their order. Nothing is sorted: the token at which the
// cumulative weight reaches a bound is found by a radix selection. Each round makes a histogram of one bucket
// of the round before, until the bucket holds at most `threads` tokens.
namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int warps = 32, threads = warps * warp_size;
constexpr int buckets = 2048, buckets_per_warp = buckets / warps;
static_assert(buckets_per_warp == 2 * warp_size);
constexpr int far_bucket = buckets - 1;  // of all tokens too far from the largest; the first round skips it
constexpr float buckets_per_unit = 64;   // of distance (Row::distance)
constexpr float mass_scale = 1099511627776.0f;  // 2^40

using Mass = unsigned long long;

struct Candidate {
  uint64_t key;  // vocabulary/ranking.cuh
  Mass weight;
};

/// The histogram of a row, in shared memory.
struct Histogram {
  Mass weight[buckets];
  unsigned count[buckets];
  Candidate candidates[threads];
  Mass range_weights[warps];
  unsigned candidate_count;
  int bucket;         // in which the cumulative weight reaches `wanted`
  Mass wanted;        // cumulative weight, from the most probable token on
  Mass before;        // cumulative weight of the buckets before `bucket`
  Candidate reached;  // the token at which `wanted` is reached: its key, and the cumulative weight up to it
};

/// A row of logits. Tokens whose key is below min_key are left out.
struct Row {
  const float* logits;
  int64_t width;
  float largest, temperature;
  uint64_t min_key;

  /// Distance of logit x from the largest, in units of temperature.
  __device__ float distance(float x) const {
    if (x == largest) return 0;  // for an infinite one too
    const float scaled = (largest - x) / temperature;
    return scaled >= 0 ? scaled : -minus_infinity();
  }
};

/// How a round assigns tokens to buckets: the first one by distance, later ones by bits of the key, from the
/// highest on. "Parent" is the bucket that the round before has chosen.
struct Round {
  int number = 0;
  // A bucket is bits [shift, parent_shift) of the inverted key; parent_shift is the shift of the round
  // before.
  int shift = 64, parent_shift = 64;
  int parent_bucket = 0;       // bucket chosen by the first round
  uint64_t parent_prefix = 0;  // bits of the inverted key above parent_shift, in the parent bucket

  __device__ static int bucket_at(float distance) {
    const float scaled = distance * buckets_per_unit;
    return scaled < far_bucket ? static_cast<int>(scaled) : far_bucket;
  }

  /// The bucket of a token: the lower, the more probable; below 0 for a token outside the parent bucket.
  __device__ int bucket_of(float distance, uint64_t key) const {
    const int first = bucket_at(distance);
    if (number == 0) return first;
    const uint64_t inverted_key = ~key;
    if (first != parent_bucket || (number > 1 && inverted_key >> parent_shift != parent_prefix)) return -1;
    return static_cast<int>(inverted_key >> shift) & (buckets - 1);
  }

  /// Goes on to the next round, within `bucket` of this one.
  __device__ void narrow_to(int bucket) {
    const int bits = parent_shift - shift;
    if (number == 0)
      parent_bucket = bucket;
    else
      parent_prefix = (number == 1 ? 0 : parent_prefix << bits) | static_cast<unsigned>(bucket);
    ++number;
    parent_shift = shift;
    // Rounds 1 to 3 take 11, 11 and 10 bits of the value; rounds 4 and 5 11 bits each of the index, which has
    // at most 22 (max_sampled_vocabulary).
    shift = number == 1 ? 53 : number == 2 ? 42 : number == 3 ? 32 : number == 4 ? 11 : 0;
  }
};

/// Calls body(x, index) for this thread's share of the row's logits. Several are loaded before the first is
/// used.
template <class Body>
__device__ inline void for_logits(const Row& row, const Body& body) {
  constexpr int at_once = 4;
  for (int64_t begin = threadIdx.x; begin < row.width; begin += at_once * threads) {
    float x[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      x[i] = begin + i * threads < row.width ? row.logits[begin + i * threads] : minus_infinity();
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (begin + i * threads < row.width) body(x[i], static_cast<uint32_t>(begin + i * threads));
  }
}

/// Calls body(distance, key, bucket) for this thread's share of the tokens in the round's parent bucket.
template <class Body>
__device__ inline void for_tokens(const Row& row, const Round& round, const Body& body) {
  for_logits(row, [&](float x, uint32_t index) {
    const uint64_t key = key_of(x, index);
    if (key < row.min_key) return;
    const float distance = row.distance(x);
    const int bucket = round.bucket_of(distance, key);
    if (bucket >= 0) body(distance, key, bucket);
  });
}

/// The weight of a token in a histogram: 1 (top-k), or its mass (top-p and sampling). `counts`: the weight of
/// a bucket is its count.
struct ByNumber {
  static constexpr bool counts = true;
  __device__ static Mass of(float) { return 1; }
};
struct ByMass {
  static constexpr bool counts = false;
  __device__ static Mass of(float distance) { return static_cast<Mass>(exp_scalar(-distance) * mass_scale); }
};

/// Makes the histogram of a round.
template <class Weight>
__device__ inline void fill_buckets(const Row& row, const Round& round, Histogram& histogram) {
  __syncthreads();  // the previous round's buckets have been read
  for (int i = threadIdx.x; i < buckets; i += threads) {
    histogram.weight[i] = 0;
    histogram.count[i] = 0;
  }
  if (threadIdx.x == 0) histogram.candidate_count = 0;
  __syncthreads();
  for_tokens(row, round, [&](float distance, uint64_t, int bucket) {
    if (round.number == 0 && bucket == far_bucket) return;
    // 64-bit atomics are avoided where counts suffice: they are slow if many tokens share a bucket.
    if constexpr (!Weight::counts) atomicAdd(&histogram.weight[bucket], Weight::of(distance));
    atomicAdd(&histogram.count[bucket], 1u);
  });
  __syncthreads();
}

/// The sum of the values of the lanes before this one; `total` becomes that of all lanes.
__device__ inline Mass sum_before(Mass mine, Mass& total) {
  const int lane = threadIdx.x % warp_size;
  Mass inclusive_sum = mine;
  for (int lane_distance = 1; lane_distance < warp_size; lane_distance *= 2) {
    const Mass other =
        __shfl_sync(all_lanes, inclusive_sum, lane < lane_distance ? lane : lane - lane_distance);
    if (lane >= lane_distance) inclusive_sum += other;
  }
  total = __shfl_sync(all_lanes, inclusive_sum, warp_size - 1);
  return inclusive_sum - mine;
}

/// Finds the lane at which the cumulative weight, `before` plus `mine` of lanes 0, 1, .., reaches `wanted`;
/// -1 if no lane does. `before` becomes the cumulative weight of the lanes before that one.
__device__ inline int lane_of(Mass mine, Mass wanted, Mass& before) {
  Mass total = 0;
  const Mass before_lane = before + sum_before(mine, total);
  const unsigned found = __ballot_sync(all_lanes, before_lane < wanted && before_lane + mine >= wanted);
  const int lane = found == 0 ? -1 : highest_bit(found);
  before = lane < 0 ? before + total : __shfl_sync(all_lanes, before_lane, lane);
  return lane;
}

/// Finds the bucket in which the cumulative weight, from the most probable token on, reaches `wanted`. Each
/// warp adds up a range of buckets; the first warp then finds the range, and within it the bucket.
/// wanted_of(total weight) is `wanted`; the first round calls it.
template <class Weight, class Wanted>
__device__ inline void find_bucket(const Round& round, const Wanted& wanted_of, Histogram& histogram) {
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const auto pair_of = [&](int range) {
    const int first = range * buckets_per_warp + 2 * lane;
    return Weight::counts ? Mass{histogram.count[first]} + histogram.count[first + 1]
                          : histogram.weight[first] + histogram.weight[first + 1];
  };
  Mass total = 0;
  sum_before(pair_of(warp), total);
  if (lane == 0) histogram.range_weights[warp] = total;
  __syncthreads();
  if (warp != 0) return;
  const Mass range = histogram.range_weights[lane];
  Mass before = round.number == 0 ? 0 : histogram.before;
  sum_before(range, total);
  const Mass wanted = round.number == 0 ? wanted_of(total) : histogram.wanted;
  const int range_found = lane_of(range, wanted, before);
  int bucket = far_bucket;
  if (range_found >= 0) {
    bucket = range_found * buckets_per_warp + 2 * lane_of(pair_of(range_found), wanted, before);
    const Mass first = Weight::counts ? Mass{histogram.count[bucket]} : histogram.weight[bucket];
    if (before + first < wanted) {
      before += first;
      ++bucket;
    }
  }
  __syncwarp();  // all lanes have read the old values
  if (lane != 0) return;
  histogram.wanted = wanted;
  histogram.before = before;
  histogram.bucket = bucket;
}

/// Finds, among the at most `threads` tokens of the bucket, the one at which the cumulative weight reaches
/// `wanted`.
template <class Weight>
__device__ inline void find_candidate(const Row& row, const Round& round, Histogram& histogram) {
  const int bucket = histogram.bucket;
  for_tokens(row, round, [&](float distance, uint64_t key, int token_bucket) {
    if (token_bucket == bucket)
      histogram.candidates[atomicAdd(&histogram.candidate_count, 1u)] = {key, Weight::of(distance)};
  });
  __syncthreads();
  if (threadIdx.x >= histogram.candidate_count) return;
  const Candidate mine = histogram.candidates[threadIdx.x];
  Mass inclusive_sum = histogram.before;
  for (unsigned i = 0; i < histogram.candidate_count; ++i)
    if (histogram.candidates[i].key >= mine.key) inclusive_sum += histogram.candidates[i].weight;
  if (inclusive_sum >= histogram.wanted && inclusive_sum - mine.weight < histogram.wanted)
    histogram.reached = {mine.key, inclusive_sum};
}

/// The token at which the cumulative weight, from the most probable token on, reaches wanted_of(total
/// weight), and that cumulative weight.
template <class Weight, class Wanted>
__device__ inline Candidate reach(const Row& row, const Wanted& wanted_of, Histogram& histogram) {
  Round round;
  for (;;) {
    fill_buckets<Weight>(row, round, histogram);
    find_bucket<Weight>(round, wanted_of, histogram);
    __syncthreads();
    const bool counted = round.number > 0 || histogram.bucket != far_bucket;
    if (counted && histogram.count[histogram.bucket] <= threads) break;
    round.narrow_to(histogram.bucket);
  }
  find_candidate<Weight>(row, round, histogram);
  __syncthreads();
  const Candidate reached = histogram.reached;
  __syncthreads();  // the shared results have been read
  return reached;
}

/// The mass of the tokens whose distance is at most `max_distance` (min-p).
__device__ inline Mass mass_up_to(const Row& row, float max_distance, Histogram& histogram) {
  Mass mine = 0, total = 0;
  for_logits(row, [&](float x, uint32_t index) {
    if (key_of(x, index) < row.min_key) return;
    if (const float distance = row.distance(x); distance <= max_distance) mine += ByMass::of(distance);
  });
  sum_before(mine, total);
  if (threadIdx.x % warp_size == 0) histogram.range_weights[threadIdx.x / warp_size] = total;
  __syncthreads();
  Mass sum = 0;
  for (const Mass range : histogram.range_weights) sum += range;
  __syncthreads();  // the shared results have been read
  return sum;
}

/// floor(share * mass), exact for 0 <= share < 1 because share is a multiple of 2^-53.
__device__ inline Mass part_of(Mass mass, double share) {
  const uint64_t numerator = static_cast<uint64_t>(share * 9007199254740992.0);  // 2^53
  return high_product(numerator, mass) << 11 | (numerator * mass) >> 53;
}

__device__ inline Mass clamp(Mass low, Mass x, Mass high) {
  return x < low ? low : x < high ? x : high;
}

/// Samples one token for each row; one block for each row.
__global__ void __launch_bounds__(threads)
    draw(const float* logits, const RowRule* rules, int64_t width, int64_t* tokens) {
  launch_dependents();
  wait_for_prior_kernel();
  Histogram& histogram = *shared_memory<Histogram>();
  const RowRule& rule = rules[blockIdx.x];
  const double temperature = rule.temperature, top_p = rule.top_p, uniform = rule.uniform,
               max_distance = rule.max_distance;
  const int64_t top_k = static_cast<int64_t>(rule.top_k);
  Row row{logits + static_cast<int64_t>(blockIdx.x) * width, width, 0, static_cast<float>(temperature),
          no_key};

  uint64_t best = no_key;
  for_logits(row, [&](float x, uint32_t index) {
    const uint64_t key = key_of(x, index);
    if (key > best) best = key;
  });
  best = block_best<warps>(best);
  row.largest = row.logits[index_of(best)];
  const bool no_logit = !(row.largest > minus_infinity());
  const bool is_arg_max = temperature == 0 || no_logit || top_k == 1;
  if (!is_arg_max) {
    if (top_k > 0 && top_k < width) {
      const auto top_k_count = [top_k](Mass) { return static_cast<Mass>(top_k); };
      row.min_key = reach<ByNumber>(row, top_k_count, histogram).key;
    }
    Mass kept_mass = 0;
    if (top_p < 1) {
      const auto top_p_mass = [top_p](Mass total) {
        const double wanted = ceil((top_p > 0 ? top_p : 0) * static_cast<double>(total));
        return clamp(1, static_cast<Mass>(wanted), total);
      };
      kept_mass = reach<ByMass>(row, top_p_mass, histogram).weight;
    }
    if (max_distance < INFINITY) {
      const Mass near = mass_up_to(row, static_cast<float>(max_distance), histogram);
      kept_mass = kept_mass > 0 && kept_mass < near ? kept_mass : near;
    }
    const auto drawn_mass = [kept_mass, uniform](Mass total) {
      const Mass mass = kept_mass > 0 ? kept_mass : total;
      return clamp(1, part_of(mass, uniform) + 1, mass);
    };
    best = reach<ByMass>(row, drawn_mass, histogram).key;
  }
  if (threadIdx.x == 0) tokens[blockIdx.x] = no_logit ? -1 : int64_t{index_of(best)};
}

}  // namespace

void run_on_gpu(const SampleCall& call, const GpuContext& context) {
  launch("sample", draw, dim3(call.rows), threads, sizeof(Histogram), context.stream, call.logits, call.rules,
         call.width, call.tokens);
}

}  // namespace clover::kernels
