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

/// Controls of logits as a request, the flags or a model's own generation_config.json ask for them; what is
/// not there is somebody else's to say.
struct ControlFields {
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> no_repeat_ngram, min_tokens, min_length;
  std::optional<std::vector<std::pair<int64_t, double>>> bias;
  std::optional<std::vector<std::string>> bad_words;
  std::optional<std::vector<std::vector<int64_t>>> bad_words_ids;
  std::optional<std::vector<int64_t>> suppressed, suppressed_first;

  /// Takes from `defaults` what is not there.
  void fill(const ControlFields& defaults);
  bool operator==(const ControlFields&) const = default;
  /// Those that do something, by their names; an empty object: none.
  nlohmann::json described() const;
};

/// Whether `name` is one that read_controls reads.
bool is_control_field(const std::string& name);

/// Reads those of `fields` over `controls`; a null counts as absent.  InputError in one sentence for a wrong
/// type or range.
void read_controls(const nlohmann::json& fields, ControlFields& controls);

/// InputError in one sentence when a value, from wherever, is out of its range.
void check_controls(const ControlFields& controls);

/// What a request asks for, with the ids of its words; null: nothing.
std::shared_ptr<const LogitControls> resolve_controls(const ControlFields& asked,
                                                      const data::Tokenizer& tokenizer);

/// --repetition-penalty and so on.
void add_control_options(CLI::App& app, ControlFields& controls);

}  // namespace clover::infer
