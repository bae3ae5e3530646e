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

using Mass = uint64_t;  // a probability in units of 2^-40 times the largest one (cpu::combine_mass)
constexpr float infinite = std::numeric_limits<float>::infinity();

// Tokens within this distance (cpu::NearTokens) are tried first, because few tokens hold nearly all mass: of
// SmolLM2's at temperature 1, a few dozen hold 98 %.
constexpr float near_distance = 8;

struct Candidate {
  float distance;
  int64_t index;
  Mass mass;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.distance < b.distance || (a.distance == b.distance && a.index < b.index);
}

/// Finds tokens by cumulative mass without sorting all of them: it sums the mass of buckets of 1/64 of a unit
/// of distance and sorts only the bucket that holds the wanted token.
class MassHistogram {
 public:
  explicit MassHistogram(const cpu::NearTokens& tokens) : tokens_(tokens) {
    mass_.fill(0);
    for (int64_t i = 0; i < tokens.count; ++i) mass_[bucket(tokens.distance[i])] += tokens.mass(i);
  }

  Mass total() const { return std::accumulate(mass_.begin(), mass_.end(), Mass{0}); }

  /// The first token, from the most probable on, at which the cumulative mass is at least `wanted` (or the
  /// last token of non-zero mass if all of it is less), and that cumulative mass.
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
  static constexpr size_t buckets = 2048;  // of 1/64 each: distances up to 32, and e^-32 has no mass
  static size_t bucket(float distance) {
    const float scaled = distance * 64.0f;
    return scaled < static_cast<float>(buckets - 1) ? static_cast<size_t>(scaled) : buckets - 1;
  }

  /// Fills sorted_ with the tokens of a bucket that have mass.
  void sort_bucket(size_t number) {
    sorted_.clear();
    // Scaling by a power of two is exact, so these bounds select the same tokens as bucket().
    const float low = static_cast<float>(number) / 64.0f;
    const float high = number + 1 < buckets ? static_cast<float>(number + 1) / 64.0f : infinite;
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

/// Empty arrays for the tokens of a row of `count` logits, in memory of the calling thread.
cpu::NearTokens near_tokens_of(int64_t count) {
  thread_local std::vector<float> distance;
  thread_local std::vector<int32_t> integers;
  const int64_t capacity = cpu::near_capacity(count);
  if (std::ssize(distance) < capacity) {
    distance.resize(capacity);
    integers.resize(3 * capacity);
  }
  return {distance.data(), integers.data(), integers.data() + capacity, integers.data() + 2 * capacity, 0, 0};
}

/// Index of the token sampled from x[0 .. n), whose maximum is `largest`; -1 if the result depends on tokens
/// that are farther than `limit` from the largest.  With an infinite limit it is never -1.
int64_t draw(const float* x, int64_t n, float largest, const RowRule& rule, float limit) {
  cpu::NearTokens near = near_tokens_of(n);
  cpu::loops<cpu::LogitLoops>().collect_near(x, n, largest, static_cast<float>(rule.temperature), limit,
                                             near);
  MassHistogram histogram(near);
  const Mass near_mass = histogram.total();
  Mass kept_mass = near.total_mass;
  if (rule.top_p < 1) {
    const double top_p_mass = std::ceil(std::max(rule.top_p, 0.0) * static_cast<double>(near.total_mass));
    const Mass wanted = std::max<Mass>(1, static_cast<Mass>(top_p_mass));
    // With an infinite limit `wanted` exceeds near_mass at most by rounding; reach then returns the last
    // token.
    if (wanted > near_mass && limit < infinite) return -1;
    kept_mass = histogram.reach(wanted).second;
  }
  if (const float max_distance = static_cast<float>(rule.max_distance); max_distance < infinite) {
    if (max_distance > limit) return -1;
    Mass min_p_mass = 0;
    for (int64_t i = 0; i < near.count; ++i)
      if (near.distance[i] <= max_distance) min_p_mass += near.mass(i);
    // Both keep the likeliest tokens, so the smaller mass is that of the tokens which both keep.
    kept_mass = std::min(kept_mass, min_p_mass);
  }
  const Mass wanted = part_of(kept_mass, rule.uniform) + 1;
  // With an infinite limit kept_mass <= near_mass, so this is a token.
  return wanted > near_mass ? -1 : histogram.reach(wanted).first.index;
}

int64_t sample_row(const float* logits, int64_t vocab, const RowRule& rule) {
  TORCH_CHECK(vocab >= 1 && vocab <= max_sampled_vocabulary, "sample: the vocabulary has ", vocab,
              " tokens, expected 1 to ", max_sampled_vocabulary, ".");
  TORCH_CHECK(rule.uniform >= 0 && rule.uniform < 1, "sample: uniform is ", rule.uniform,
              ", expected a number in [0, 1).");
  TORCH_CHECK(rule.temperature >= 0, "sample: the temperature is ", rule.temperature,
              ", expected 0 or more.");
  if (rule.temperature == 0) return cpu::row_arg_max(logits, vocab);

  thread_local std::vector<float> kept_logits;
  thread_local std::vector<cpu::Ranked> best;
  const bool has_top_k = rule.top_k > 0 && rule.top_k < static_cast<double>(vocab);
  int64_t count = vocab;
  const float* from = logits;
  if (has_top_k) {
    count = static_cast<int64_t>(rule.top_k);
    cpu::row_top_k(logits, vocab, count, best);
    kept_logits.resize(count);
    for (int64_t i = 0; i < count; ++i) kept_logits[i] = best[i].value;
    from = kept_logits.data();
  }
  const float largest = cpu::loops<cpu::LogitLoops>().maximum(from, count);
  if (largest == -infinite) return -1;
  int64_t chosen = draw(from, count, largest, rule, near_distance);
  if (chosen < 0) chosen = draw(from, count, largest, rule, infinite);
  return has_top_k ? best[chosen].index : chosen;
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
