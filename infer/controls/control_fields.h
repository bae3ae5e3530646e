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

/// Logit controls as a request, the command line or a model's generation_config.json gives them.  A field
/// without a value was not given, so that another source may give it.  LogitControls says what
/// they mean; resolve_controls converts to it.
struct ControlFields {
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> no_repeat_ngram, min_tokens, min_length;
  std::optional<std::vector<std::pair<int64_t, double>>> bias;  // token id, number added to its logit
  std::optional<std::vector<std::string>> bad_words;            // texts
  std::optional<std::vector<std::vector<int64_t>>> bad_words_ids;
  std::optional<std::vector<int64_t>> suppressed, suppressed_first;  // token ids

  /// Fills the fields without a value from `defaults`.
  void fill_from(const ControlFields& defaults);
  bool operator==(const ControlFields&) const = default;
  /// The fields that have an effect, under the names that requests use.
  nlohmann::json to_json() const;
};

/// Whether read_controls reads a field of this name.
bool is_control_field(const std::string& name);

/// Reads the control fields of a request into `controls`.  A field that is absent or null leaves its value
/// unchanged; other fields are ignored.  InputError for a wrong type or range.
void read_controls(const nlohmann::json& fields, ControlFields& controls);

/// InputError when a value is out of its range.
void check_controls(const ControlFields& controls);

/// Converts the fields: missing ones get the value without effect, bad_words are tokenised.  Null when no
/// control has an effect.
std::shared_ptr<const LogitControls> resolve_controls(const ControlFields& fields,
                                                      const data::Tokenizer& tokenizer);

/// Declares --repetition-penalty and the other options for logit controls.
void add_control_options(CLI::App& app, ControlFields& controls);

}  // namespace clover::infer
