#include "infer/controls/generation_settings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "data/files/error.h"
#include "data/files/files.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr const char* counts[] = {"no_repeat_ngram_size", "min_new_tokens", "min_length"};
constexpr const char* lists_of_ids[] = {"suppress_tokens", "begin_suppress_tokens"};

// What `generate` obeys and is not done here, with the values at which it does nothing; null always does
// nothing.
const std::map<std::string, json>& not_done() {
  static const std::map<std::string, json> neutral = {{"constraints", {}},
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
  return neutral;
}

// Of sampling, the last of which cannot be asked for here.
constexpr const char* of_sampling[] = {"temperature", "top_k", "top_p", "min_p"};
const std::map<std::string, json> sampling_not_done = {
    {"epsilon_cutoff", 0}, {"eta_cutoff", 0}, {"top_h", {}}, {"typical_p", 1}};

json member(const json& file, const std::string& name) {
  const auto at = file.find(name);
  return at == file.end() ? json() : *at;
}

std::string shown(const std::string& name, const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() <= 40) return name + " " + text;
  return name + (value.is_array() ? " (" + std::to_string(value.size()) + " of them)"
                                  : " " + text.substr(0, 40) + "...");
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all;
}

/// What of the file is built, as fields of a request, without what `generate` takes for nothing.
json built_fields(const json& file) {
  json fields = json::object();
  fields["repetition_penalty"] = member(file, "repetition_penalty");
  fields["bad_words_ids"] = member(file, "bad_words_ids");
  for (const char* name : lists_of_ids) fields[name] = member(file, name);
  for (const char* name : counts) {
    const json value = member(file, name);
    if (!value.is_number() || value.get<double>() > 0) fields[name] = value;
  }
  return fields;
}

void leave_out_strangers(ControlFields& controls, int64_t vocab) {
  const auto strange = [vocab](int64_t id) { return id < 0 || id >= vocab; };
  for (auto* ids : {&controls.suppressed, &controls.suppressed_first})
    if (*ids) std::erase_if(**ids, strange);
  if (controls.bad_words_ids) {
    std::erase_if(*controls.bad_words_ids,
                  [&](const std::vector<int64_t>& word) { return std::ranges::any_of(word, strange); });
  }
}

void add_asked(const json& file, const std::map<std::string, json>& neutral, std::vector<std::string>& to) {
  for (const auto& [name, nothing] : neutral)
    if (const json value = member(file, name); !value.is_null() && value != nothing && !value.empty())
      to.push_back(shown(name, value));
}

std::string notice_of(const std::string& source, const json& file, const ControlFields& controls) {
  std::vector<std::string> in_force, asked, sampling;
  const json described = controls.described();
  for (const auto& [name, value] : described.items()) in_force.push_back(shown(name, value));
  add_asked(file, not_done(), asked);
  if (member(file, "do_sample") == true) {
    add_asked(file, sampling_not_done, asked);
    sampling.push_back("do_sample");
    for (const char* name : of_sampling)
      if (const json value = member(file, name); !value.is_null()) sampling.push_back(shown(name, value));
  }
  std::vector<std::string> parts;
  if (!in_force.empty()) parts.push_back("in force by default: " + joined(in_force));
  if (!asked.empty()) parts.push_back("asked for and not done: " + joined(asked));
  if (!sampling.empty())
    parts.push_back("left to --temperature, --top-p, --top-k and --min-p: " + joined(sampling));
  if (parts.empty()) return "";
  std::string notice = source + ": ";
  for (const std::string& part : parts) notice += (&part == &parts.front() ? "" : "; ") + part;
  return notice;
}

}  // namespace

GenerationSettings read_generation_settings(const std::filesystem::path& folder, int64_t vocab) {
  const bool own = std::filesystem::exists(folder / "generation_config.json");
  const char* name = own ? "generation_config.json" : "config.json";
  const json file = data::read_json(folder / name);
  GenerationSettings settings;
  if (!file.is_object()) return settings;
  try {
    read_controls(built_fields(file), settings.controls);
  } catch (const data::InputError& error) {
    throw data::InputError((folder / name).string() + ": " + error.what());
  }
  leave_out_strangers(settings.controls, vocab);
  settings.notice = notice_of((folder / name).string(), file, settings.controls);
  return settings;
}

}  // namespace clover::infer
