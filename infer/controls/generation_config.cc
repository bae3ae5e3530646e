#include "infer/controls/generation_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/json_fields.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr const char* count_fields[] = {"no_repeat_ngram_size", "min_new_tokens", "min_length"};
constexpr const char* id_list_fields[] = {"suppress_tokens", "begin_suppress_tokens"};

/// Settings of transformers' `generate` that are not supported, each with the value at which it has no
/// effect.  A setting that is null never has an effect.
const std::map<std::string, json>& unsupported_settings() {
  static const std::map<std::string, json> no_effect_values = {{"constraints", {}},
                                                               {"diversity_penalty", 0},
                                                               {"dola_layers", {}},
                                                               {"encoder_no_repeat_ngram_size", 0},
                                                               {"encoder_repetition_penalty", 1},
                                                               {"exponential_decay_length_penalty", {}},
                                                               {"force_words_ids", {}},
                                                               {"forced_bos_token_id", {}},
                                                               {"forced_decoder_ids", {}},
                                                               {"forced_eos_token_id", {}},
                                                               {"guidance_scale", 1},
                                                               {"max_length", {}},
                                                               {"max_new_tokens", {}},
                                                               {"max_time", {}},
                                                               {"num_beam_groups", 1},
                                                               {"num_beams", 1},
                                                               {"num_return_sequences", 1},
                                                               {"penalty_alpha", 0},
                                                               {"remove_invalid_values", false},
                                                               {"sequence_bias", {}},
                                                               {"stop_strings", {}},
                                                               {"token_healing", false},
                                                               {"watermarking_config", {}}};
  return no_effect_values;
}

/// Sampling settings that are not read: command-line options and requests give them.
constexpr const char* sampling_settings[] = {"temperature", "top_k", "top_p", "min_p"};
/// Sampling settings that are not supported, each with the value at which it has no effect.
const std::map<std::string, json> unsupported_sampling = {
    {"epsilon_cutoff", 0}, {"eta_cutoff", 0}, {"top_h", {}}, {"typical_p", 1}};

/// The value of `name` in the file; null when it is absent.
json member(const json& file, const std::string& name) {
  const auto at = file.find(name);
  return at == file.end() ? json() : *at;
}

/// "name value" for messages, with at most 40 bytes of the value.
std::string setting_text(const std::string& name, const json& value) {
  std::string text = data::to_json_line(value);
  if (text.size() <= 40) return name + " " + text;
  return name + (value.is_array() ? " (" + std::to_string(value.size()) + " of them)"
                                  : " " + text.substr(0, 40) + "...");
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

/// The supported settings of the file as fields of a request.  Counts that are not positive are left out,
/// because `generate` ignores them.
json supported_fields(const json& file) {
  json fields = json::object();
  fields["repetition_penalty"] = member(file, "repetition_penalty");
  fields["bad_words_ids"] = member(file, "bad_words_ids");
  for (const char* name : id_list_fields) fields[name] = member(file, name);
  for (const char* name : count_fields) {
    const json value = member(file, name);
    if (!value.is_number() || value.get<double>() > 0) fields[name] = value;
  }
  return fields;
}

/// Drops token ids outside the vocabulary, and bad words that contain one.
void drop_unknown_ids(ControlFields& controls, int64_t vocab) {
  const auto unknown = [vocab](int64_t id) { return id < 0 || id >= vocab; };
  for (auto* ids : {&controls.suppressed, &controls.suppressed_first})
    if (*ids) std::erase_if(**ids, unknown);
  if (controls.bad_words_ids) {
    std::erase_if(*controls.bad_words_ids,
                  [&](const std::vector<int64_t>& word) { return std::ranges::any_of(word, unknown); });
  }
}

/// Adds to `texts` those of `settings` that the file gives with an effect.  `settings`: names, each with the
/// value without effect.
void add_effective(const json& file, const std::map<std::string, json>& settings,
                   std::vector<std::string>& texts) {
  for (const auto& [name, no_effect] : settings)
    if (const json value = member(file, name); !value.is_null() && value != no_effect && !value.empty())
      texts.push_back(setting_text(name, value));
}

/// GenerationSettings::notice.  `source`: the file's path; `controls`: what was read from it.
std::string notice_of(const std::string& source, const json& file, const ControlFields& controls) {
  std::vector<std::string> in_force, unsupported, sampling;
  const json fields = controls.to_json();
  for (const auto& [name, value] : fields.items()) in_force.push_back(setting_text(name, value));
  add_effective(file, unsupported_settings(), unsupported);
  if (member(file, "do_sample") == true) {
    add_effective(file, unsupported_sampling, unsupported);
    sampling.push_back("do_sample");
    for (const char* name : sampling_settings)
      if (const json value = member(file, name); !value.is_null())
        sampling.push_back(setting_text(name, value));
  }
  std::vector<std::string> parts;
  if (!in_force.empty()) parts.push_back("in force by default: " + joined(in_force));
  if (!unsupported.empty()) parts.push_back("asked for and not done: " + joined(unsupported));
  if (!sampling.empty())
    parts.push_back("left to --temperature, --top-p, --top-k and --min-p: " + joined(sampling));
  if (parts.empty()) return "";
  std::string notice = source + ": ";
  for (const std::string& part : parts) notice += (&part == &parts.front() ? "" : "; ") + part;
  return notice;
}

}  // namespace

GenerationSettings read_generation_settings(const std::filesystem::path& folder, int64_t vocab) {
  const bool has_generation_config = std::filesystem::exists(folder / "generation_config.json");
  const char* name = has_generation_config ? "generation_config.json" : "config.json";
  const json file = data::read_json(folder / name);
  GenerationSettings settings;
  if (!file.is_object()) return settings;
  try {
    read_controls(supported_fields(file), settings.controls);
  } catch (const data::InputError& error) {
    throw data::InputError((folder / name).string() + ": " + error.what());
  }
  drop_unknown_ids(settings.controls, vocab);
  settings.notice = notice_of((folder / name).string(), file, settings.controls);
  return settings;
}

}  // namespace clover::infer
