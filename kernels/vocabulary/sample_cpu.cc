#include "kernels/vocabulary/sample.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/rows.h"
#include "kernels/vocabulary/logit_loops.h"
#include "kernels/vocabulary/row_top_k.h"

namespace clover::kernels {
namespace {

using Mass = uint64_t;  // a multiple of 2^-40 of the most probable token's: see cpu::NearTokens
constexpr float infinite = std::numeric_limits<float>::infinity();

// Tokens within this distance are looked at first: at temperature 1 a few dozen of SmolLM2's have 98 % of the
// mass.
constexpr float near_distance = 8;

struct Candidate {
  float distance;
  int64_t index;
  Mass mass;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.distance < b.distance || (a.distance == b.distance && a.index < b.index);
}

/// The tokens in order of probability, in buckets of 1/64 of a unit of distance, which are sorted only where
/// it matters.
class Ladder {
 public:
  explicit Ladder(const cpu::NearTokens& tokens) : tokens_(tokens) {
    mass_.fill(0);
    for (int64_t i = 0; i < tokens.count; ++i) mass_[bucket(tokens.distance[i])] += tokens.mass(i);
  }

  Mass total() const { return std::accumulate(mass_.begin(), mass_.end(), Mass{0}); }

  /// The first candidate at which the mass summed from the top is at least `wanted` (or the last one that has
  /// any mass), and that sum.
  std::pair<Candidate, Mass> reach(Mass wanted) {
    Mass before = 0;
    size_t at = 0, last = 0;
    for (; at < mass_.size(); ++at) {
      if (mass_[at] != 0) last = at;
      if (before + mass_[at] >= wanted && mass_[at] != 0) break;
      before += mass_[at];
    }
    if (at == mass_.size()) {
      at = last;
      before -= mass_[at];
    }
    sort_bucket(at);
    for (const Candidate& candidate : sorted_) {
      before += candidate.mass;
      if (before >= wanted) return {candidate, before};
    }
    return {sorted_.back(), before};
  }

 private:
  static constexpr size_t buckets = 2048;
  static size_t bucket(float distance) {
    const float scaled = distance * 64.0f;
    return scaled < static_cast<float>(buckets - 1) ? static_cast<size_t>(scaled) : buckets - 1;
  }

  void sort_bucket(size_t wanted) {
    sorted_.clear();
    // The bucket's edges are exact (a scaling by a power of two), so two comparisons tell its members.
    const float low = static_cast<float>(wanted) / 64.0f;
    const float high = wanted + 1 < buckets ? static_cast<float>(wanted + 1) / 64.0f : infinite;
    for (int64_t i = 0; i < tokens_.count; ++i) {
      const float distance = tokens_.distance[i];
      if (!(distance >= low && distance < high)) continue;
      if (const Mass mass = tokens_.mass(i); mass != 0) sorted_.push_back({distance, tokens_.index[i], mass});
    }
    std::sort(sorted_.begin(), sorted_.end(), likelier);
  }

  const cpu::NearTokens& tokens_;
  std::array<Mass, buckets> mass_;
  std::vector<Candidate> sorted_;
};

/// floor(share * mass) for 0 <= share < 1, exactly: share is a multiple of 2^-53.
Mass part_of(Mass mass, double share) {
  const auto numerator = static_cast<unsigned __int128>(std::ldexp(share, 53));
  return static_cast<Mass>((numerator * mass) >> 53);
}

/// Memory for all tokens of a row, one for each thread.
cpu::NearTokens room_for(int64_t count) {
  thread_local std::vector<float> distance;
  thread_local std::vector<int32_t> integers;
  const int64_t room = cpu::near_room(count);
  if (std::ssize(distance) < room) {
    distance.resize(room);
    integers.resize(3 * room);
  }
  return {distance.data(), integers.data(), integers.data() + room, integers.data() + 2 * room, 0, 0};
}

/// Index of the token drawn from x[0 .. n); -1 where the draw depends on tokens farther than `limit` from the
/// largest, which it cannot where `limit` is infinite.
int64_t draw(const float* x, int64_t n, float largest, const RowRule& rule, float limit) {
  cpu::NearTokens near = room_for(n);
  cpu::loops<cpu::LogitLoops>().weigh(x, n, largest, static_cast<float>(rule.temperature), limit, near);
  Ladder ladder(near);
  const Mass within = ladder.total();
  Mass kept = near.mass_of_all;
  if (rule.top_p < 1) {
    const double least = std::ceil(std::max(rule.top_p, 0.0) * static_cast<double>(near.mass_of_all));
    const Mass wanted = std::max<Mass>(1, static_cast<Mass>(least));
    if (wanted > within && limit < infinite) return -1;
    kept = ladder.reach(wanted).second;
  }
  if (const float farthest = static_cast<float>(rule.farthest); farthest < infinite) {
    if (farthest > limit) return -1;
    Mass near_enough = 0;
    for (int64_t i = 0; i < near.count; ++i)
      if (near.distance[i] <= farthest) near_enough += near.mass(i);
    kept = std::min(kept, near_enough);
  }
  const Mass wanted = part_of(kept, rule.uniform) + 1;
  return wanted > within ? -1 : ladder.reach(wanted).first.index;
}

int64_t sample_row(const float* logits, int64_t vocab, const RowRule& rule) {
  TORCH_CHECK(vocab >= 1 && vocab <= most_sampled, "sample: the vocabulary has ", vocab,
              " tokens, expected 1 to ", most_sampled, ".");
  TORCH_CHECK(rule.uniform >= 0 && rule.uniform < 1, "sample: uniform is ", rule.uniform,
              ", expected a number in [0, 1).");
  TORCH_CHECK(rule.temperature >= 0, "sample: the temperature is ", rule.temperature,
              ", expected 0 or more.");
  if (rule.temperature == 0) return cpu::row_arg_max(logits, vocab);

  thread_local std::vector<float> kept;
  thread_local std::vector<cpu::Ranked> best;
  const bool cut = rule.top_k > 0 && rule.top_k < static_cast<double>(vocab);
  int64_t count = vocab;
  const float* from = logits;
  if (cut) {
    count = static_cast<int64_t>(rule.top_k);
    cpu::row_top_k(logits, vocab, count, best);
    kept.resize(count);
    for (int64_t i = 0; i < count; ++i) kept[i] = best[i].value;
    from = kept.data();
  }
  const float largest = cpu::loops<cpu::LogitLoops>().maximum(from, count);
  if (largest == -infinite) return -1;
  int64_t chosen = draw(from, count, largest, rule, near_distance);
  if (chosen < 0) chosen = draw(from, count, largest, rule, infinite);
  return cut ? best[chosen].index : chosen;
}

}  // namespace

int64_t sample(const float* logits, int64_t vocab, const SamplingRule& rule, double uniform) {
  return sample_row(
      logits, vocab,
      {rule.temperature, rule.top_p, static_cast<double>(rule.top_k), uniform, -std::log(rule.min_p)});
}

void run_on_cpu(const SampleCall& call) {
  cpu::for_rows(call.rows, call.width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      call.tokens[row] = sample_row(call.logits + row * call.width, call.width, call.rules[row]);
  });
}

}  // namespace clover::kernels
