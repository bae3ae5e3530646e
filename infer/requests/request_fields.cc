#include "infer/requests/request_fields.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "data/files/error.h"
#include "data/text/utf8.h"
#include "infer/requests/neutral_fields.h"

namespace clover::infer {
namespace {

using nlohmann::json;

// Parameters of the OpenAI interface and of well-known engines that would change the answer, each with the
// value at which it does nothing.
const std::map<std::string, json>& unsupported_parameters() {
  static const std::map<std::string, json> neutral = {
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
  return neutral;
}

const std::vector<std::string> supported_parameters = {
    "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens", "stop"};

// Of the OpenAI interface, and without influence on the answer here.
const std::vector<std::string> harmless_parameters = {"model",
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

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string shortened(const json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))  // JSON has no name for it
    return std::to_string(value.get<double>());
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

[[noreturn]] void refuse(const std::string& name, const std::string& expected, const json& found) {
  throw data::InputError(name + ": expected " + expected + ", found " + shortened(found));
}

const json* find(const json& fields, const std::string& name) {
  const auto at = fields.find(name);
  return at == fields.end() || at->is_null() ? nullptr : &*at;
}

void read_number(const json& fields, const std::string& name, const std::string& expected, double& into) {
  if (const json* value = find(fields, name)) {
    if (!value->is_number()) refuse(name, expected, *value);
    into = value->get<double>();
  }
}

void read_integer(const json& fields, const std::string& name, const std::string& expected, int64_t& into) {
  if (const json* value = find(fields, name)) {
    const auto read = as_integer(*value);
    if (!read) refuse(name, expected, *value);
    into = *read;
  }
}

void read_stop(const json& fields, std::vector<std::string>& stop) {
  const json* value = find(fields, "stop");
  if (!value) return;
  const std::string expected = "a string or a list of strings, none of them empty";
  stop.clear();
  if (value->is_string() && value->get_ref<const std::string&>().empty()) return;  // clients' way of none
  for (const json& one : value->is_array() ? *value : json::array({*value})) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty()) refuse("stop", expected, *value);
    stop.push_back(one.get<std::string>());
  }
}

void refuse_unsupported(const json& fields, bool strict, const std::vector<std::string>& also_known) {
  for (const auto& [name, value] : fields.items()) {
    if (value.is_null() || is_sampling_field(name) || holds(also_known, name)) continue;
    const auto unsupported = unsupported_parameters().find(name);
    if (unsupported != unsupported_parameters().end()) {
      if (is_neutral(fields, name, value, unsupported->second)) continue;
      throw data::InputError(
          "parameter " + name + " is not supported (found " + shortened(value) + "); remove it" +
          (unsupported->second.is_null() ? "" : " or set it to " + unsupported->second.dump()));
    }
    if (strict && !holds(harmless_parameters, name) && !is_left_at_default(fields, name, value)) {
      throw data::InputError("parameter " + name + " is not known (found " + shortened(value) +
                             "); remove it from the request");
    }
  }
}

}  // namespace

SamplingFields read_sampling_fields(const json& fields, const SamplingFields& defaults, bool strict,
                                    const std::vector<std::string>& also_known) {
  refuse_unsupported(fields, strict, also_known);
  SamplingFields read = defaults;
  read_number(fields, "temperature", "a number >= 0", read.rule.temperature);
  read_number(fields, "top_p", "a number above 0 and at most 1", read.rule.top_p);
  read_integer(fields, "top_k", "an integer >= 0 (0 or -1: all tokens)", read.rule.top_k);
  if (read.rule.top_k == -1) read.rule.top_k = 0;  // as vLLM and transformers have it
  read_number(fields, "min_p", "a number from 0 to 1", read.rule.min_p);
  read_controls(fields, read.controls);
  read_integer(fields, "max_tokens", "an integer >= 1", read.max_tokens);
  read_integer(fields, "max_completion_tokens", "an integer >= 1", read.max_tokens);
  if (const json* seed = find(fields, "seed")) {
    if (!seed->is_number_unsigned() && !as_integer(*seed)) refuse("seed", "an integer of 64 bits", *seed);
    read.seed =
        seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(*as_integer(*seed));
    read.own_seed = true;
  }
  read_stop(fields, read.stop);
  check_sampling(read);
  return read;
}

bool is_sampling_field(const std::string& name) {
  return holds(supported_parameters, name) || is_control_field(name);
}

void check_sampling(const SamplingFields& fields) {
  const double temperature = fields.rule.temperature, top_p = fields.rule.top_p;
  if (!std::isfinite(temperature) || temperature < 0) refuse("temperature", "a number >= 0", temperature);
  if (!(top_p > 0 && top_p <= 1)) refuse("top_p", "a number above 0 and at most 1", top_p);
  if (fields.rule.top_k < 0) refuse("top_k", "an integer >= 0 (0 or -1: all tokens)", fields.rule.top_k);
  if (const double min_p = fields.rule.min_p; !(min_p >= 0 && min_p <= 1))
    refuse("min_p", "a number from 0 to 1", min_p);
  check_controls(fields.controls);
  if (fields.max_tokens < 1) refuse("max_tokens", "an integer >= 1", fields.max_tokens);
  if (const auto& least = fields.controls.min_tokens; least && *least > fields.max_tokens)
    refuse("min_tokens", "at most max_tokens (" + std::to_string(fields.max_tokens) + ")", *least);
  for (const std::string& stop : fields.stop) {
    if (stop.empty()) throw data::InputError("stop: expected a text that is not empty, found \"\"");
    if (!data::is_utf8(stop)) throw data::InputError("stop: expected UTF-8");
  }
}

}  // namespace clover::infer
