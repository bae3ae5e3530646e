#include "kernels/vocabulary/ranking.cuh"
#include "kernels/vocabulary/sample.h"

// One block for each row. As on the CPU (sample_cpu.cc) probabilities are whole multiples of 2^-40 of the
// largest, so that sums do not depend on their order. Nothing is sorted: the token at which a running sum
// reaches a bound is found by histograms over buckets of probability, each round over a narrower range, until
// few tokens are left.
namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int warps = 32, threads = warps * warp_size;
constexpr int buckets = 2048, buckets_a_warp = buckets / warps;
static_assert(buckets_a_warp == 2 * warp_size);
constexpr int far_bucket = buckets - 1;        // of tokens without mass, whose number nobody counts
constexpr float buckets_a_unit = 64;           // of temperature
constexpr float mass_unit = 1099511627776.0f;  // 2^40

using Mass = unsigned long long;

struct Candidate {
  uint64_t key;
  Mass weight;
};

/// The histogram of a row, in shared memory.
struct Ladder {
  Mass weight[buckets];
  unsigned count[buckets];
  Candidate candidates[threads];
  Mass stretches[warps];
  unsigned candidate_count;
  int bucket;           // that the weight wanted is reached in
  Mass wanted, before;  // from the top, and of that in earlier buckets
  Candidate reached;    // its key, and the weight down to it
};

/// A row, of whose tokens those with at least the key least_key are kept.
struct Row {
  const float* logits;
  int64_t width;
  float largest, temperature;
  uint64_t least_key;

  /// Distance of logit x from the largest, in units of temperature.
  __device__ float distance(float x) const {
    if (x == largest) return 0;  // also where that is infinite
    const float scaled = (largest - x) / temperature;
    return scaled >= 0 ? scaled : -minus_infinity();
  }
};

/// The buckets of a round: equal distances in the first, then bits of the key from the highest on. `parent`
/// is the bucket that the round before has chosen.
struct Round {
  int number = 0;
  int shift = 64, parent_shift = 64;  // of the bits below a bucket's, in this round and in the last
  int parent_bucket = 0;              // of the first round
  uint64_t parent_prefix = 0;         // of the key, from the second round on

  __device__ static int bucket_at(float distance) {
    const float scaled = distance * buckets_a_unit;
    return scaled < far_bucket ? static_cast<int>(scaled) : far_bucket;
  }

  /// The bucket of a token: the lower, the more probable; below 0 for a token outside the parent bucket.
  __device__ int bucket_of(float distance, uint64_t key) const {
    const int first = bucket_at(distance);
    if (number == 0) return first;
    const uint64_t falling = ~key;
    if (first != parent_bucket || (number > 1 && falling >> parent_shift != parent_prefix)) return -1;
    return static_cast<int>(falling >> shift) & (buckets - 1);
  }

  __device__ void descend(int bucket) {
    const int apart = parent_shift - shift;
    if (number == 0)
      parent_bucket = bucket;
    else
      parent_prefix = (number == 1 ? 0 : parent_prefix << apart) | static_cast<unsigned>(bucket);
    ++number;
    parent_shift = shift;
    // 32 bits of the value; the index has no more than 22.
    shift = number == 1 ? 53 : number == 2 ? 42 : number == 3 ? 32 : number == 4 ? 11 : 0;
  }
};

/// Calls body(x, index) for the row's logits that fall to this thread, and loads several before the first is
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

/// Calls body(distance, key, bucket) for the tokens of this round.
template <class Body>
__device__ inline void for_tokens(const Row& row, const Round& round, const Body& body) {
  for_logits(row, [&](float x, uint32_t index) {
    const uint64_t key = key_of(x, index);
    if (key < row.least_key) return;
    const float distance = row.distance(x);
    const int bucket = round.bucket_of(distance, key);
    if (bucket >= 0) body(distance, key, bucket);
  });
}

/// The weight of a token: 1 (top-k), or its mass (top-p, drawing).
struct ByNumber {
  static constexpr bool counts = true;
  __device__ static Mass of(float) { return 1; }
};
struct ByMass {
  static constexpr bool counts = false;
  __device__ static Mass of(float distance) { return static_cast<Mass>(exp_one(-distance) * mass_unit); }
};

template <class Weight>
__device__ inline void fill_buckets(const Row& row, const Round& round, Ladder& ladder) {
  __syncthreads();  // the last round's have been read
  for (int i = threadIdx.x; i < buckets; i += threads) {
    ladder.weight[i] = 0;
    ladder.count[i] = 0;
  }
  if (threadIdx.x == 0) ladder.candidate_count = 0;
  __syncthreads();
  for_tokens(row, round, [&](float distance, uint64_t, int bucket) {
    if (round.number == 0 && bucket == far_bucket) return;
    // Atomics of 64 bits are loops, and in narrow rounds many tokens share a bucket.
    if constexpr (!Weight::counts) atomicAdd(&ladder.weight[bucket], Weight::of(distance));
    atomicAdd(&ladder.count[bucket], 1u);
  });
  __syncthreads();
}

/// The sum of the values of the lanes before this one; `all` becomes that of all lanes.
__device__ inline Mass sum_before(Mass mine, Mass& all) {
  const int lane = threadIdx.x % warp_size;
  Mass through = mine;
  for (int apart = 1; apart < warp_size; apart *= 2) {
    const Mass other = __shfl_sync(all_lanes, through, lane < apart ? lane : lane - apart);
    if (lane >= apart) through += other;
  }
  all = __shfl_sync(all_lanes, through, warp_size - 1);
  return through - mine;
}

/// The lane in whose share the running weight reaches `wanted`, -1 where it is in none's; `before` becomes
/// the weight ahead of that share.
__device__ inline int lane_of(Mass mine, Mass wanted, Mass& before) {
  Mass all = 0;
  const Mass own = before + sum_before(mine, all);
  const unsigned found = __ballot_sync(all_lanes, own < wanted && own + mine >= wanted);
  const int lane = found == 0 ? -1 : highest_bit(found);
  before = lane < 0 ? before + all : __shfl_sync(all_lanes, own, lane);
  return lane;
}

/// Finds the bucket in which the running weight, from the most probable token on, reaches `wanted`. Each warp
/// adds up a range of buckets; the first warp then finds the range, and within it the bucket.
template <class Weight, class Wanted>
__device__ inline void find_bucket(const Round& round, const Wanted& wanted_of, Ladder& ladder) {
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const auto pair_of = [&](int stretch) {
    const int first = stretch * buckets_a_warp + 2 * lane;
    return Weight::counts ? Mass{ladder.count[first]} + ladder.count[first + 1]
                          : ladder.weight[first] + ladder.weight[first + 1];
  };
  Mass all = 0;
  sum_before(pair_of(warp), all);
  if (lane == 0) ladder.stretches[warp] = all;
  __syncthreads();
  if (warp != 0) return;
  const Mass stretch = ladder.stretches[lane];
  Mass before = round.number == 0 ? 0 : ladder.before;
  sum_before(stretch, all);
  const Mass wanted = round.number == 0 ? wanted_of(all) : ladder.wanted;
  const int in_stretch = lane_of(stretch, wanted, before);
  int bucket = far_bucket;
  if (in_stretch >= 0) {
    bucket = in_stretch * buckets_a_warp + 2 * lane_of(pair_of(in_stretch), wanted, before);
    const Mass first = Weight::counts ? Mass{ladder.count[bucket]} : ladder.weight[bucket];
    if (before + first < wanted) {
      before += first;
      ++bucket;
    }
  }
  __syncwarp();  // all lanes have read what was there
  if (lane != 0) return;
  ladder.wanted = wanted;
  ladder.before = before;
  ladder.bucket = bucket;
}

/// Finds, among the few tokens of the bucket, the one at which the running weight reaches `wanted`.
template <class Weight>
__device__ inline void pick(const Row& row, const Round& round, Ladder& ladder) {
  const int bucket = ladder.bucket;
  for_tokens(row, round, [&](float distance, uint64_t key, int of_token) {
    if (of_token == bucket)
      ladder.candidates[atomicAdd(&ladder.candidate_count, 1u)] = {key, Weight::of(distance)};
  });
  __syncthreads();
  if (threadIdx.x >= ladder.candidate_count) return;
  const Candidate mine = ladder.candidates[threadIdx.x];
  Mass through = ladder.before;
  for (unsigned i = 0; i < ladder.candidate_count; ++i)
    if (ladder.candidates[i].key >= mine.key) through += ladder.candidates[i].weight;
  if (through >= ladder.wanted && through - mine.weight < ladder.wanted) ladder.reached = {mine.key, through};
}

/// The token at which the weights, summed from the most probable token on, reach wanted_of(sum of all), and
/// that sum.
template <class Weight, class Wanted>
__device__ inline Candidate reach(const Row& row, const Wanted& wanted_of, Ladder& ladder) {
  Round round;
  for (;;) {
    fill_buckets<Weight>(row, round, ladder);
    find_bucket<Weight>(round, wanted_of, ladder);
    __syncthreads();
    const bool counted = round.number > 0 || ladder.bucket != far_bucket;
    if (counted && ladder.count[ladder.bucket] <= threads) break;
    round.descend(ladder.bucket);
  }
  pick<Weight>(row, round, ladder);
  __syncthreads();
  const Candidate reached = ladder.reached;
  __syncthreads();  // before the next round writes there
  return reached;
}

/// The mass of the tokens whose distance is at most `farthest` (min-p).
__device__ inline Mass mass_within(const Row& row, float farthest, Ladder& ladder) {
  Mass mine = 0, all = 0;
  for_logits(row, [&](float x, uint32_t index) {
    if (key_of(x, index) < row.least_key) return;
    if (const float distance = row.distance(x); distance <= farthest) mine += ByMass::of(distance);
  });
  sum_before(mine, all);
  if (threadIdx.x % warp_size == 0) ladder.stretches[threadIdx.x / warp_size] = all;
  __syncthreads();
  Mass sum = 0;
  for (const Mass stretch : ladder.stretches) sum += stretch;
  __syncthreads();  // before the next round writes there
  return sum;
}

/// floor(share * mass) for 0 <= share < 1, exactly: share is a multiple of 2^-53.
__device__ inline Mass part_of(Mass mass, double share) {
  const uint64_t numerator = static_cast<uint64_t>(share * 9007199254740992.0);
  return high_product(numerator, mass) << 11 | (numerator * mass) >> 53;
}

__device__ inline Mass between(Mass least, Mass x, Mass most) {
  return x < least ? least : x < most ? x : most;
}

__global__ void __launch_bounds__(threads)
    draw(const float* logits, const RowRule* rules, int64_t width, int64_t* tokens) {
  launch_dependents();
  wait_for_prior_kernel();
  Ladder& ladder = *shared_memory<Ladder>();
  const RowRule& rule = rules[blockIdx.x];
  const double temperature = rule.temperature, top_p = rule.top_p, uniform = rule.uniform,
               farthest = rule.farthest;
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
  const bool none = !(row.largest > minus_infinity());
  const bool certain = temperature == 0 || none || top_k == 1;
  if (!certain) {
    if (top_k > 0 && top_k < width) {
      const auto all_kept = [top_k](Mass) { return static_cast<Mass>(top_k); };
      row.least_key = reach<ByNumber>(row, all_kept, ladder).key;
    }
    Mass kept = 0;
    if (top_p < 1) {
      const auto share = [top_p](Mass all) {
        const double wanted = ceil((top_p > 0 ? top_p : 0) * static_cast<double>(all));
        return between(1, static_cast<Mass>(wanted), all);
      };
      kept = reach<ByMass>(row, share, ladder).weight;
    }
    if (farthest < INFINITY) {
      const Mass near = mass_within(row, static_cast<float>(farthest), ladder);
      kept = kept > 0 && kept < near ? kept : near;
    }
    const auto drawn = [kept, uniform](Mass all) {
      const Mass mass = kept > 0 ? kept : all;
      return between(1, part_of(mass, uniform) + 1, mass);
    };
    best = reach<ByMass>(row, drawn, ladder).key;
  }
  if (threadIdx.x == 0) tokens[blockIdx.x] = none ? -1 : int64_t{index_of(best)};
}

}  // namespace

void run_on_gpu(const SampleCall& call, const GpuContext& context) {
  launch("sample", draw, dim3(call.rows), threads, sizeof(Ladder), context.stream, call.logits, call.rules,
         call.width, call.tokens);
}

}  // namespace clover::kernels
