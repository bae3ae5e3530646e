#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/controls/logit_controls.h"

namespace clover::infer {

/// Logit controls as they are written in a request, in command-line options or in a model's
/// generation_config.json. An empty optional was not given, so that another source may give it.
/// resolve_controls makes LogitControls of them.
struct ControlFields {
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> no_repeat_ngram, min_tokens, min_length;
  std::optional<std::vector<std::pair<int64_t, double>>> bias;  // token id, what is added to its logit
  std::optional<std::vector<std::string>> bad_words;            // texts
  std::optional<std::vector<std::vector<int64_t>>> bad_words_ids;
  std::optional<std::vector<int64_t>> suppressed, suppressed_first;

  /// Takes the fields that are empty here from `defaults`.
  void fill_from(const ControlFields& defaults);
  bool operator==(const ControlFields&) const = default;
  /// The fields that have an effect, under the names that requests use.
  nlohmann::json to_json() const;
};

/// Whether read_controls reads a field of this name.
bool is_control_field(const std::string& name);

/// Reads the fields of a request into `controls`; a field that is absent or null leaves its value. InputError
/// in one sentence for a wrong type or range.
void read_controls(const nlohmann::json& fields, ControlFields& controls);

/// InputError in one sentence when a value, from whichever source, is out of its range.
void check_controls(const ControlFields& controls);

/// The controls that `fields` ask for, words tokenised; null when they have no effect.
std::shared_ptr<const LogitControls> resolve_controls(const ControlFields& fields,
                                                      const data::Tokenizer& tokenizer);

/// Declares --repetition-penalty and the other options for logit controls.
void add_control_options(CLI::App& app, ControlFields& controls);

}  // namespace clover::infer
