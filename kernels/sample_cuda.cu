#include "kernels/device/launchers.h"
#include "kernels/device/ranking.h"

// A block a row.  As on the CPU (sample_cpu.cc) probabilities are whole multiples of 2^-40 of the largest, so
// that sums do not depend on their order.  Nothing is sorted: the token at which a sum is reached is found by
// sums over buckets of the order of probability, then over narrower ones until few tokens are left.
namespace clover::kernels::cuda {
namespace {

constexpr int warps = 32, threads = warps * warp_size;
constexpr int buckets = 2048, buckets_a_lane = buckets / warp_size;
constexpr int far_bucket = buckets - 1;        // of tokens without mass, whose number nobody counts
constexpr float buckets_a_unit = 64;           // of temperature
constexpr float mass_unit = 1099511627776.0f;  // 2^40

using Mass = unsigned long long;

struct Candidate {
  uint64_t key;
  Mass weight;
};

/// Of a row, in shared memory.
struct Ladder {
  Mass weight[buckets];
  unsigned count[buckets];
  Candidate candidates[threads];
  unsigned candidate_count;
  int bucket;           // that the weight wanted is reached in
  Mass wanted, before;  // from the top, and of that in earlier buckets
  Candidate reached;    // its key, and the weight down to it
};

/// A row and which of its tokens are still in the game: those of at least this key.
struct Row {
  const float* logits;
  int64_t width;
  float largest, temperature;
  uint64_t least_key;

  /// How far x lies below the largest, in units of temperature.
  __device__ float distance(float x) const {
    if (x == largest) return 0;  // also where that is infinite
    const float scaled = (largest - x) / temperature;
    return scaled >= 0 ? scaled : -minus_infinity();
  }
};

__device__ inline Mass mass_at(float distance) {
  return static_cast<Mass>(exp_one(-distance) * mass_unit);
}

/// Buckets of a round: equal distances in the first, then bits of the key from the highest on.  `parent` is
/// the bucket of the round before, and those before that.
struct Round {
  int number = 0;
  int parent_bucket = 0;       // of the first round
  uint64_t parent_prefix = 0;  // of the key, from the second round on

  __device__ static int shift(int round) {
    constexpr int shifts[] = {64, 53, 42, 32, 11, 0};  // the index has no more than 22 bits
    return shifts[round];
  }
  __device__ static int bucket_at(float distance) {
    const float scaled = distance * buckets_a_unit;
    return scaled < far_bucket ? static_cast<int>(scaled) : far_bucket;
  }

  /// The better, the lower; below 0 for a token of another parent.
  __device__ int bucket_of(float distance, uint64_t key) const {
    const int first = bucket_at(distance);
    if (number == 0) return first;
    const uint64_t falling = ~key;
    if (first != parent_bucket || (number > 1 && falling >> shift(number - 1) != parent_prefix)) return -1;
    return static_cast<int>(falling >> shift(number)) & (buckets - 1);
  }

  __device__ void descend(int bucket) {
    if (number == 0)
      parent_bucket = bucket;
    else
      parent_prefix = parent_prefix << (shift(number - 1) - shift(number)) | static_cast<unsigned>(bucket);
    ++number;
  }
};

/// body(distance, key, bucket) for the row's tokens of this round that fall to this thread.
template <class Body>
__device__ inline void for_tokens(const Row& row, const Round& round, const Body& body) {
  for (int64_t index = threadIdx.x; index < row.width; index += threads) {
    const float x = row.logits[index];
    const uint64_t key = key_of(x, static_cast<uint32_t>(index));
    if (key < row.least_key) continue;
    const float distance = row.distance(x);
    const int bucket = round.bucket_of(distance, key);
    if (bucket >= 0) body(distance, key, bucket);
  }
}

template <class Weight>
__device__ inline void fill_buckets(const Row& row, const Round& round, const Weight& weight_at,
                                    Ladder& ladder) {
  __syncthreads();  // the last round's have been read
  for (int i = threadIdx.x; i < buckets; i += threads) {
    ladder.weight[i] = 0;
    ladder.count[i] = 0;
  }
  if (threadIdx.x == 0) ladder.candidate_count = 0;
  __syncthreads();
  for_tokens(row, round, [&](float distance, uint64_t, int bucket) {
    if (round.number == 0 && bucket == far_bucket) return;
    atomicAdd(&ladder.weight[bucket], weight_at(distance));
    atomicAdd(&ladder.count[bucket], 1u);
  });
  __syncthreads();
}

/// What the lanes before this one brought, and `all` of it.
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

/// By the first warp: the bucket in which the weight wanted, from the top, is reached.
template <class Wanted>
__device__ inline void find_bucket(const Round& round, const Wanted& wanted_of, Ladder& ladder) {
  const int first = static_cast<int>(threadIdx.x % warp_size) * buckets_a_lane;
  Mass mine = 0, all = 0;
  for (int i = 0; i < buckets_a_lane; ++i) mine += ladder.weight[first + i];
  const Mass in_lanes = sum_before(mine, all);
  const Mass known = round.number == 0 ? 0 : ladder.before;
  const Mass wanted = round.number == 0 ? wanted_of(all) : ladder.wanted;
  __syncwarp();
  Mass before = known + in_lanes;
  if (threadIdx.x == 0) {
    ladder.wanted = wanted;
    if (known + all < wanted) {
      ladder.bucket = far_bucket;
      ladder.before = known + all;
    }
  }
  if (before >= wanted || before + mine < wanted) return;
  int bucket = first;
  while (before + ladder.weight[bucket] < wanted) before += ladder.weight[bucket++];
  ladder.bucket = bucket;
  ladder.before = before;
}

/// Among the few tokens of the bucket, the one at which the weight wanted is reached.
template <class Weight>
__device__ inline void pick(const Row& row, const Round& round, const Weight& weight_at, Ladder& ladder) {
  const int bucket = ladder.bucket;
  for_tokens(row, round, [&](float distance, uint64_t key, int of_token) {
    if (of_token == bucket)
      ladder.candidates[atomicAdd(&ladder.candidate_count, 1u)] = {key, weight_at(distance)};
  });
  __syncthreads();
  if (threadIdx.x >= ladder.candidate_count) return;
  const Candidate mine = ladder.candidates[threadIdx.x];
  Mass through = ladder.before;
  for (unsigned i = 0; i < ladder.candidate_count; ++i)
    if (ladder.candidates[i].key >= mine.key) through += ladder.candidates[i].weight;
  if (through >= ladder.wanted && through - mine.weight < ladder.wanted) ladder.reached = {mine.key, through};
}

/// The token at which the weights, summed from the likeliest on, reach wanted_of(sum of all), and that sum.
template <class Wanted, class Weight>
__device__ inline Candidate reach(const Row& row, const Wanted& wanted_of, const Weight& weight_at,
                                  Ladder& ladder) {
  Round round;
  for (;;) {
    fill_buckets(row, round, weight_at, ladder);
    if (threadIdx.x < warp_size) find_bucket(round, wanted_of, ladder);
    __syncthreads();
    const bool counted = round.number > 0 || ladder.bucket != far_bucket;
    if (counted && ladder.count[ladder.bucket] <= threads) break;
    round.descend(ladder.bucket);
  }
  pick(row, round, weight_at, ladder);
  __syncthreads();
  const Candidate reached = ladder.reached;
  __syncthreads();  // before the next round writes there
  return reached;
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
    draw(const float* logits, const double* rules, int64_t width, int64_t* tokens) {
  let_next_begin();
  wait_for_last();
  Ladder& ladder = *shared_memory<Ladder>();
  const double* rule = rules + static_cast<int64_t>(blockIdx.x) * 4;
  const double top_p = rule[1], uniform = rule[3];
  const int64_t top_k = static_cast<int64_t>(rule[2]);
  Row row{logits + static_cast<int64_t>(blockIdx.x) * width, width, 0, static_cast<float>(rule[0]), no_key};

  uint64_t best = no_key;
  for (int64_t index = threadIdx.x; index < width; index += threads) {
    const uint64_t key = key_of(row.logits[index], static_cast<uint32_t>(index));
    if (key > best) best = key;
  }
  best = block_best<warps>(best);
  row.largest = row.logits[index_of(best)];
  // Of a row without any number the first is the best.
  const bool certain = rule[0] == 0 || !(row.largest > minus_infinity()) || top_k == 1;
  if (!certain) {
    const auto by_mass = [](float distance) { return mass_at(distance); };
    if (top_k > 0 && top_k < width)
      row.least_key =
          reach(
              row, [top_k](Mass) { return static_cast<Mass>(top_k); }, [](float) { return Mass{1}; }, ladder)
              .key;
    Mass kept = 0;
    if (top_p < 1)
      kept = reach(
                 row,
                 [top_p](Mass all) {
                   const double wanted = ceil((top_p > 0 ? top_p : 0) * static_cast<double>(all));
                   return between(1, static_cast<Mass>(wanted), all);
                 },
                 by_mass, ladder)
                 .weight;
    best = reach(
               row,
               [kept, uniform](Mass all) {
                 const Mass mass = kept > 0 ? kept : all;
                 return between(1, part_of(mass, uniform) + 1, mass);
               },
               by_mass, ladder)
               .key;
  }
  if (threadIdx.x == 0) tokens[blockIdx.x] = index_of(best);
}

}  // namespace

void launch_sample(const float* logits, const double* rules, int64_t rows, int64_t width, int64_t* tokens,
                   Stream stream) {
  launch("sample", draw, dim3(rows), threads, sizeof(Ladder), stream, logits, rules, width, tokens);
}

}  // namespace clover::kernels::cuda
