#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace clover::infer {

/// What making heads has taken, seconds: of the answers the sum over processes, otherwise of wall-clock time.
struct TrainingCost {
  double answers_seconds = 0;       // of answering with `batch` or `synthesize`; 0: not recorded
  double prepare_seconds = 0;       // of `prepare`; 0: not recorded
  double fit_seconds = 0;           // of the optimiser steps
  double evaluation_seconds = 0;    // of the evaluations between them
  double operations = 0;            // floating-point operations of the fit; 0: not recorded
  double joules = 0;                // of answers and fit (EnergyMeter); 0: not known of one of them
  int64_t unrecorded_sources = 0;   // files of answers that do not tell what they took
  bool features_from_file = false;  // the target's passes were made by another run, and do not count here
  double seconds() const { return answers_seconds + prepare_seconds + fit_seconds + evaluation_seconds; }
};

/// The cost that a heads folder's config.json records under "training"; nothing where it records none.  That
/// of the whole run, also for best/ of an earlier step, and that of the heads that `fit --init-heads` began
/// with.
std::optional<TrainingCost> training_cost(const nlohmann::json& heads_config);
/// {"seconds", "answers_seconds", "prepare_seconds", "fit_seconds", "evaluation_seconds", "operations"} and,
/// if known, "joules"; "unrecorded_sources" and "features_from_file" where something is left out.
nlohmann::json to_json(const TrainingCost& cost);

/// How many tokens must be served until the heads have saved the time of making them, at these tokens/s of
/// plain decoding and with the heads: cost / (1 / plain - 1 / heads).  Nothing when the heads save none.
std::optional<double> break_even_tokens(const TrainingCost& cost, double plain_tokens_per_second,
                                        double tokens_per_second);

/// Adds "training_cost" and "break_even_tokens" (null: never) to the entries of run_bench whose heads record
/// their cost; `costs`: by name of the heads.
void add_break_even(nlohmann::json& configurations, const std::map<std::string, TrainingCost>& costs);
/// A line for each kind of heads and batch size, for the fastest policy there; empty without costs.
std::string break_even_table(const nlohmann::json& configurations);

}  // namespace clover::infer
