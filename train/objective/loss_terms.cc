#include "train/objective/loss_terms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "data/files/error.h"

namespace clover::train {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// InputError for `text`, the value of --loss; `found`: what is wrong with it.
[[noreturn]] void refuse(const std::string& text, const std::string& found) {
  std::string names;
  for (const char* name : loss_term_names) names += (names.empty() ? "" : ", ") + std::string(name);
  throw data::InputError("Setting --loss is \"" + text + "\", of which " + found +
                         "; expected terms joined by +, each once, with a weight above 0 before it or none, "
                         "such as \"soft-labels + 0.1 smooth-l1\"; the terms are: " +
                         names + ".");
}

/// Reads the weight at the start of `term` and removes it; 1 if there is none.
double take_weight(std::string_view& term, const std::string& text) {
  if (term.empty() || (term.front() != '.' && (term.front() < '0' || term.front() > '9'))) return 1;
  double weight = 0;
  const auto [end, error] = std::from_chars(term.data(), term.data() + term.size(), weight);
  const size_t length = static_cast<size_t>(end - term.data());
  if (error != std::errc() || length == term.size() || *end != ' ' || !(weight > 0) || !std::isfinite(weight))
    refuse(text, "\"" + std::string(term) + "\" is no weight above 0 and a term");
  term = trimmed(term.substr(length));
  return weight;
}

}  // namespace

LossTerms LossTerms::parse(const std::string& text) {
  LossTerms terms;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    std::string_view term = trimmed(std::string_view(text).substr(begin, end - begin));
    const double weight = take_weight(term, text);
    const auto name = std::ranges::find(loss_term_names, term);
    if (name == loss_term_names.end()) refuse(text, "\"" + std::string(term) + "\" is no term");
    double& term_weight = terms.weights_[static_cast<size_t>(name - loss_term_names.begin())];
    if (term_weight > 0) refuse(text, "\"" + std::string(term) + "\" stands twice");
    term_weight = weight;
    begin = end + 1;
  }
  return terms;
}

int64_t LossTerms::count() const {
  return std::ranges::count_if(weights_, [](double weight) { return weight > 0; });
}

bool LossTerms::reads_vocabulary() const {
  return has(LossTerm::cross_entropy) || reads_target();
}

bool LossTerms::reads_target() const {
  return has(LossTerm::soft_labels) || has(LossTerm::total_variation) || has(LossTerm::lk);
}

nlohmann::json LossTerms::to_json(const std::function<double(LossTerm)>& value) const {
  nlohmann::json values = nlohmann::json::object();
  for (size_t k = 0; k < loss_term_count; ++k)
    if (const auto term = static_cast<LossTerm>(k); has(term)) values[loss_term_names[k]] = value(term);
  return values;
}

double LossTerms::weighted_sum(const TermValues& values) const {
  double sum = 0;
  for (size_t k = 0; k < loss_term_count; ++k)
    if (weights_[k] > 0) sum += weights_[k] * values[k];
  return sum;
}

}  // namespace clover::train
