#include "train/run/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <type_traits>

#include "data/files/error.h"
#include "model/drafters/drafter.h"

namespace clover::train {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& expected, const std::string& found) {
  throw data::InputError("Setting --" + name + " is " + found + ", expected " + expected + ".");
}

template <class Number>
void at_least(const char* name, Number value, Number least) {
  if (!(value >= least)) {  // also refuses NaN
    std::ostringstream expected, found;
    expected << "at least " << least;
    found << value;
    refuse(name, expected.str(), found.str());
  }
}

void one_of(const char* name, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  std::string list;
  for (const auto& word : known) list += (list.empty() ? "" : ", ") + word;
  refuse(name, "one of: " + list, "\"" + value + "\"");
}

void in_unit(const char* name, double value) {
  if (!(value >= 0 && value < 1))
    refuse(name, "a number from 0 up to, but not including, 1", std::to_string(value));
}

/// Settings that may differ in a resumed run: evaluation, checkpoints, and those that only affect speed.
const std::set<std::string> changes_no_weight{"eval-every",       "eval-prompts",     "eval-max-tokens",
                                              "checkpoint-every", "keep-checkpoints", "feature-cache",
                                              "feature-file",     "target",           "data",
                                              "init-heads"};

/// The numbers in a list such as "10,20".
std::vector<int64_t> layers_of(const std::string& text) {
  std::vector<int64_t> layers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (!layers.empty() && *at++ != ',') break;
    int64_t layer = 0;
    const auto [read, error] = std::from_chars(at, end, layer);
    if (error != std::errc() || *at == '0' || layer <= (layers.empty() ? 0 : layers.back())) break;
    layers.push_back(layer);
    at = read;
    if (at == end) return layers;
  }
  if (!text.empty()) refuse("tap-layers", "ascending numbers of layers, such as 10,20", '"' + text + '"');
  return {};
}

/// The settings of drafters of all kinds, by their names in config.json of a heads folder.
nlohmann::json drafter_settings_by_key(const FitSettings& of) {
  return {{"heads", of.heads},
          {"regression", of.regression},
          {"block", of.block},
          {"gate_groups", of.gate_groups},
          {"augmenting_layers", of.augmenting_layers},
          {"tap_layers", layers_of(of.tap_layers)}};
}

// "cuda" for any "cuda:N": the number of the GPU does not matter.
std::string device_type(const std::string& device) {
  return device.substr(0, device.find(':'));
}

}  // namespace

std::string list_drafter_kinds() {
  std::string list;
  for (const std::string& kind : model::drafter_kinds()) list += (list.empty() ? "" : ", ") + kind;
  return list;
}

void FitSettings::check() const {
  each(*this, [](const char* name, const auto& value, const std::string&) {
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>) {
      if (!std::isfinite(value)) refuse(name, "a finite number", std::to_string(value));
    }
  });
  one_of("kind", kind, model::drafter_kinds());
  at_least("heads", heads, int64_t{1});
  one_of("regression", regression, {"attention", "concat", "none"});
  one_of("block", block, {"full", "attention", "none"});
  at_least("gate-groups", gate_groups, int64_t{1});
  at_least("augmenting-layers", augmenting_layers, int64_t{1});
  static_cast<void>(drafter());  // throws for settings that the kind does not have
  at_least("draft-vocab", draft_vocab, int64_t{0});
  if (!(lr > 0)) refuse("lr", "a number above 0", std::to_string(lr));
  if (steps == 0 && !(epochs > 0 && epochs <= 1e6))
    refuse("epochs", "a number above 0, at most a million", std::to_string(epochs));
  at_least("steps", steps, int64_t{0});
  at_least("batch", batch, int64_t{1});
  at_least("micro-batch", micro_batch, int64_t{1});
  at_least("warmup", warmup, int64_t{0});
  at_least("clip", clip, 0.0);
  at_least("weight-decay", weight_decay, 0.0);
  in_unit("beta1", beta1);
  in_unit("beta2", beta2);
  if (!(eps > 0)) refuse("eps", "a number above 0", std::to_string(eps));
  if (!(head_decay > 0 && head_decay <= 1))
    refuse("head-decay", "above 0 and at most 1", std::to_string(head_decay));
  at_least("max-length", max_length, int64_t{3});
  at_least("threads", threads, int64_t{0});
  one_of("dtype", dtype, {"auto", "bfloat16", "float16", "float32"});
  one_of("compute-dtype", compute_dtype, {"auto", "bfloat16", "float32"});
  at_least("feature-cache", feature_cache, int64_t{-1});
  at_least("eval-every", eval_every, int64_t{0});
  at_least("eval-prompts", eval_prompts, int64_t{0});
  at_least("eval-max-tokens", eval_max_tokens, int64_t{1});
  at_least("checkpoint-every", checkpoint_every, int64_t{1});
  at_least("keep-checkpoints", keep_checkpoints, int64_t{0});
  if (target.empty())
    throw data::InputError("No target: give --target DIR, the folder of the language model.");
  if (data.empty())
    throw data::InputError("No data: give --data DIR, a folder that `clover-train prepare` wrote.");
}

nlohmann::json FitSettings::drafter() const {
  const nlohmann::json given = drafter_settings_by_key(*this), usual = drafter_settings_by_key({});
  const nlohmann::json own = model::settings_of_kind(kind, given);
  for (const auto& [name, value] : given.items()) {
    if (own.contains(name) || value == usual[name]) continue;
    std::string option = name;
    std::ranges::replace(option, '_', '-');
    throw data::InputError("Setting --" + option + ": heads of kind " + kind +
                           " have none; leave it out, or give another --kind.");
  }
  return own;
}

nlohmann::json FitSettings::to_json() const {
  nlohmann::json all = nlohmann::json::object();
  each(*this, [&](const char* name, const auto& value, const std::string&) { all[name] = value; });
  return all;
}

std::string FitSettings::to_toml() const {
  std::string text;
  each(*this, [&](const char* name, const auto& value, const std::string&) {
    // TOML spells strings and numbers as JSON does, but its integers have 63 bits; a larger seed is written
    // as a string.
    std::string spelled = nlohmann::json(value).dump();
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, uint64_t>)
      if (value > std::numeric_limits<int64_t>::max()) spelled = '"' + spelled + '"';
    text += std::string(name) + " = " + spelled + "\n";
  });
  return text;
}

nlohmann::json FitSettings::completed(const nlohmann::json& recorded) {
  nlohmann::json all = FitSettings().to_json();
  all.update(recorded);
  return all;
}

bool FitSettings::same_weights(const nlohmann::json& one, const nlohmann::json& other) {
  nlohmann::json first = completed(one), second = completed(other);
  for (const std::string& name : changes_no_weight) {
    if (name == "init-heads") continue;  // only the beginning of a run depends on them
    first.erase(name);
    second.erase(name);
  }
  return first == second;
}

void FitSettings::check_continues(const nlohmann::json& recorded) const {
  const nlohmann::json own = to_json(), known = completed(recorded);
  for (const auto& [name, value] : own.items()) {
    if (changes_no_weight.contains(name)) continue;
    const nlohmann::json& before = known.at(name);
    if (name == "device" && before.is_string() && device_type(before) == device_type(value)) continue;
    if (before != value) {
      throw data::InputError("Setting --" + name + " is " + value.dump() +
                             ", but the run to continue was started with " + before.dump() +
                             ": give the same value, or begin a new run in another folder.");
    }
  }
}

}  // namespace clover::train
