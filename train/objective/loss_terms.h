#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace clover::train {

/// The terms of a loss, which is their weighted sum.  For one row of one head: z are the head's logits over
/// the draft vocabulary and q = softmax(z); y is the label, the data's token; h is the target's post-norm
/// feature at the position before y, and P its distribution there, over the draft vocabulary;
/// a = sum_v min(P_v, q_v) is the probability that rejection sampling accepts a guess drawn from q.
enum class LossTerm {
  cross_entropy,    // -log q_y
  soft_labels,      // -sum_v P_v log q_v
  total_variation,  // 1 - a
  lk,               // -log a: the negative log-acceptance of "LK Losses", arXiv 2602.23881
  smooth_l1,        // SmoothL1 (beta 1) of the head's output minus h, the mean over their width
};
constexpr size_t loss_term_count = 5;
inline constexpr std::array<const char*, loss_term_count> loss_term_names{
    "cross-entropy", "soft-labels", "total-variation", "lk", "smooth-l1"};

/// One number for each term, in the order of LossTerm.
using TermValues = std::array<double, loss_term_count>;

/// The weight of each term in a loss, 0 for a term that the loss does not have.  The weights of the heads
/// (--head-decay) are in Trainer::head_scale.
class LossTerms {
 public:
  LossTerms() = default;  // no term
  /// Reads the text of setting --loss: terms joined by +, each with its weight before it unless that is 1,
  /// such as "cross-entropy" or "soft-labels + 0.1 smooth-l1".  InputError for anything else.
  static LossTerms parse(const std::string& text);

  double operator[](LossTerm term) const { return weights_[static_cast<size_t>(term)]; }
  bool has(LossTerm term) const { return (*this)[term] > 0; }
  int64_t count() const;          // terms that the loss has
  bool reads_vocabulary() const;  // whether a term needs the drafter's logits
  bool reads_target() const;      // whether a term needs the target's distribution P
  double weighted_sum(const TermValues& values) const;
  /// {"soft-labels": value(LossTerm::soft_labels), ..}, for each term that the loss has.
  nlohmann::json to_json(const std::function<double(LossTerm)>& value) const;

 private:
  TermValues weights_{};
};

}  // namespace clover::train
