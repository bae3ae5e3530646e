#include "infer/requests/unsupported_params.h"

#include <algorithm>
#include <map>

#include "data/files/error.h"
#include "data/files/json_fields.h"
#include "infer/requests/sampling_params.h"

namespace clover::infer {
namespace {

using nlohmann::json;

/// Parameters of OpenAI's API and of well-known engines that would change the answer and are not supported,
/// each with the value at which it has no effect.
const std::map<std::string, json>& unsupported_params() {
  static const std::map<std::string, json> no_effect_values = {
      {"n", 1},
      {"best_of", 1},
      {"stream", false},
      {"echo", false},
      {"logprobs", false},
      {"top_logprobs", 0},
      {"prompt_logprobs", 0},
      {"length_penalty", 1},
      {"typical_p", 1},
      {"top_a", 0},
      {"top_h", json()},
      {"tfs_z", 1},
      {"epsilon_cutoff", 0},
      {"eta_cutoff", 0},
      {"mirostat", 0},
      {"mirostat_mode", 0},
      {"xtc_probability", 0},
      {"dry_multiplier", 0},
      {"dynatemp_range", 0},
      {"repeat_penalty", 1},
      {"num_beams", 1},
      {"num_beam_groups", 1},
      {"num_return_sequences", 1},
      {"diversity_penalty", 0},
      {"penalty_alpha", 0},
      {"encoder_repetition_penalty", 1},
      {"encoder_no_repeat_ngram_size", 0},
      {"exponential_decay_length_penalty", json()},
      {"forced_bos_token_id", json()},
      {"forced_eos_token_id", json()},
      {"force_words_ids", json()},
      {"sequence_bias", json()},
      {"guidance_scale", 1},
      {"watermarking_config", json()},
      {"allowed_token_ids", json()},
      {"use_beam_search", false},
      {"ignore_eos", false},
      {"stop_token_ids", json::array()},
      {"tools", json::array()},
      {"tool_choice", "none"},
      {"functions", json::array()},
      {"function_call", "none"},
      {"response_format", json{{"type", "text"}}},
      {"suffix", ""},
      {"modalities", json::array({"text"})},
      {"audio", json()},
      {"prediction", json()},
      {"reasoning_effort", json()},
      {"guided_json", json()},
      {"guided_regex", json()},
      {"guided_choice", json()},
      {"chat_template_kwargs", json::object()},
  };
  return no_effect_values;
}

/// Parameters of OpenAI's API that never change an answer here.
const std::vector<std::string> ignored_params = {"model",
                                                 "user",
                                                 "metadata",
                                                 "store",
                                                 "service_tier",
                                                 "stream_options",
                                                 "parallel_tool_calls",
                                                 "safety_identifier",
                                                 "prompt_cache_key",
                                                 "prompt_cache_retention",
                                                 "cache_salt",
                                                 "request_id",
                                                 "priority"};

/// Parameters of other engines that strict requests may have, each with the only value that is accepted.
const std::map<std::string, json>& default_only_params() {
  static const std::map<std::string, json> values = {{"skip_special_tokens", true},
                                                     {"spaces_between_special_tokens", true},
                                                     {"include_stop_str_in_output", false},
                                                     {"add_generation_prompt", true},
                                                     {"continue_final_message", false},
                                                     {"detokenize", true},
                                                     {"early_stopping", false},
                                                     {"return_token_ids", false},
                                                     {"return_tokens_as_token_ids", false},
                                                     {"structured_outputs", json()},
                                                     {"guided_grammar", json()},
                                                     {"verbosity", "medium"},
                                                     {"web_search_options", json()}};
  return values;
}

bool is_empty(const json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) || value == "";
}

bool is_missing_or_empty(const json& fields, const char* name) {
  const auto at = fields.find(name);
  return at == fields.end() || is_empty(*at);
}

/// Whether the parameter `name` with this value leaves the answer as it is: the value is `no_effect`, or
/// another spelling of it that clients use.
bool has_no_effect(const json& fields, const std::string& name, const json& value, const json& no_effect) {
  if (value == no_effect) return true;
  if (name == "response_format") return value.is_object() && value.value("type", json()) == "text";
  // "auto" is OpenAI's default; without tools there is nothing to choose from.
  if (name == "tool_choice") return value == "auto" && is_missing_or_empty(fields, "tools");
  if (name == "function_call") return value == "auto" && is_missing_or_empty(fields, "functions");
  return is_empty(no_effect) && is_empty(value);
}

/// Whether the parameter is in default_only_params and has the value given there.
bool has_default_value(const json& fields, const std::string& name, const json& value) {
  // A chat template writes the special tokens itself.
  if (name == "add_special_tokens") return value == !fields.contains("messages");
  const auto known = default_only_params().find(name);
  return known != default_only_params().end() && has_no_effect(fields, name, value, known->second);
}

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void refuse_unsupported_params(const json& fields, bool strict, const std::vector<std::string>& also_known) {
  for (const auto& [name, value] : fields.items()) {
    if (value.is_null() || is_sampling_param(name) || is_among(also_known, name)) continue;
    const auto unsupported = unsupported_params().find(name);
    if (unsupported != unsupported_params().end()) {
      if (has_no_effect(fields, name, value, unsupported->second)) continue;
      throw data::InputError(
          "parameter " + name + " is not supported (found " + data::excerpt(value, 40) + "); remove it" +
          (unsupported->second.is_null() ? "" : " or set it to " + unsupported->second.dump()));
    }
    if (strict && !is_among(ignored_params, name) && !has_default_value(fields, name, value)) {
      throw data::InputError("parameter " + name + " is not known (found " + data::excerpt(value, 40) +
                             "); remove it from the request");
    }
  }
}

}  // namespace clover::infer
