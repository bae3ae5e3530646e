#include "train/run/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <type_traits>

#include "data/files/error.h"
#include "model/drafters/drafter.h"
#include "train/objective/loss_terms.h"

namespace clover::train {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& expected, const std::string& found) {
  throw data::InputError("Setting --" + name + " is " + found + ", expected " + expected + ".");
}

template <class Number>
void check_at_least(const char* name, Number value, Number least) {
  if (!(value >= least)) {  // also refuses NaN
    std::ostringstream expected, found;
    expected << "at least " << least;
    found << value;
    refuse(name, expected.str(), found.str());
  }
}

void check_one_of(const char* name, const std::string& value, const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list;
  for (const auto& word : allowed) list += (list.empty() ? "" : ", ") + word;
  refuse(name, "one of: " + list, "\"" + value + "\"");
}

void check_unit_interval(const char* name, double value) {
  if (!(value >= 0 && value < 1))
    refuse(name, "a number from 0 up to, but not including, 1", std::to_string(value));
}

/// Settings that may differ in a resumed run.  Most of them change no weight.  Of target and data the
/// checkpoint records what is in the folders, and init-heads is read only when a run begins.
const std::set<std::string> may_differ_on_resume{"eval-every",       "eval-prompts",     "eval-max-tokens",
                                                 "checkpoint-every", "keep-checkpoints", "feature-cache",
                                                 "feature-file",     "target",           "data",
                                                 "init-heads"};

/// Whether a setting that `for_each` visits is an option of a kind of drafter.
template <class Value>
constexpr bool is_kind_option = std::is_same_v<std::decay_t<Value>, nlohmann::json>;

// "cuda" for any "cuda:N": the GPU's number does not change the weights.
std::string device_type(const std::string& device) {
  return device.substr(0, device.find(':'));
}

}  // namespace

nlohmann::json default_kind_options() {
  nlohmann::json defaults = nlohmann::json::object();
  for (const model::DrafterOption& option : model::drafter_options()) defaults[option.name] = nullptr;
  return defaults;
}

std::string list_drafter_kinds() {
  std::string list;
  for (const std::string& kind : model::drafter_kinds()) list += (list.empty() ? "" : ", ") + kind;
  return list;
}

void FitSettings::check() const {
  for_each(*this, [](const char* name, const auto& value, const std::string&) {
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>) {
      if (!std::isfinite(value)) refuse(name, "a finite number", std::to_string(value));
    }
  });
  check_one_of("kind", kind, model::drafter_kinds());
  // Throws for options that are out of bounds or that the kind does not have.
  static_cast<void>(drafter_settings());
  check_at_least("draft-vocab", draft_vocab, int64_t{0});
  if (!(lr > 0)) refuse("lr", "a number above 0", std::to_string(lr));
  if (steps == 0 && !(epochs > 0 && epochs <= 1e6))
    refuse("epochs", "a number above 0, at most a million", std::to_string(epochs));
  check_at_least("steps", steps, int64_t{0});
  check_at_least("batch", batch, int64_t{1});
  check_at_least("micro-batch", micro_batch, int64_t{1});
  check_at_least("warmup", warmup, int64_t{0});
  check_at_least("clip", clip, 0.0);
  check_at_least("weight-decay", weight_decay, 0.0);
  check_unit_interval("beta1", beta1);
  check_unit_interval("beta2", beta2);
  if (!(eps > 0)) refuse("eps", "a number above 0", std::to_string(eps));
  if (!(head_decay > 0 && head_decay <= 1))
    refuse("head-decay", "above 0 and at most 1", std::to_string(head_decay));
  if (!(self_feed >= 0 && self_feed <= 1)) refuse("self-feed", "from 0 to 1", std::to_string(self_feed));
  if (!(distill_samples >= 0 && distill_samples <= 1024))
    refuse("distill-samples", "from 0 to 1024", std::to_string(distill_samples));
  if (!LossTerms::parse(loss).has(LossTerm::cross_entropy) && distill_samples > 0)
    refuse("distill-samples", "0, for --loss \"" + loss + "\" has no cross-entropy",
           std::to_string(distill_samples));
  check_at_least("max-length", max_length, int64_t{3});  // the first guess is two tokens ahead
  check_at_least("threads", threads, int64_t{0});
  check_one_of("dtype", dtype, {"auto", "bfloat16", "float16", "float32"});
  check_one_of("compute-dtype", compute_dtype, {"auto", "bfloat16", "float32"});
  check_at_least("feature-cache", feature_cache, int64_t{-1});
  check_at_least("eval-every", eval_every, int64_t{0});
  check_at_least("eval-prompts", eval_prompts, int64_t{0});
  check_at_least("eval-max-tokens", eval_max_tokens, int64_t{1});
  check_at_least("checkpoint-every", checkpoint_every, int64_t{1});
  check_at_least("keep-checkpoints", keep_checkpoints, int64_t{0});
  if (target.empty())
    throw data::InputError("No target: give --target DIR, the folder of the language model.");
  if (data.empty())
    throw data::InputError("No data: give --data DIR, a folder that `clover-train prepare` wrote.");
}

nlohmann::json FitSettings::drafter_settings() const {
  return model::settings_from_options(kind, kind_options);
}

nlohmann::json FitSettings::to_json() const {
  nlohmann::json settings = nlohmann::json::object();
  for_each(*this, [&](const char* name, const auto& value, const std::string&) {
    if constexpr (!is_kind_option<decltype(value)>) settings[name] = value;
  });
  // By way of the drafter's settings, which have the defaults of options that were not given.
  settings.update(model::options_from_settings(kind, drafter_settings()));
  return settings;
}

std::string FitSettings::to_toml() const {
  const nlohmann::json settings = to_json();
  std::string text;
  for_each(*this, [&](const char* name, const auto& value, const std::string&) {
    if (!settings.contains(name)) return;  // of another kind of drafter
    // TOML spells strings, numbers and booleans as JSON does, but its integers are signed; a seed that is too
    // large for that is written as a string.
    std::string toml_value = settings.at(name).dump();
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, uint64_t>)
      if (value > std::numeric_limits<int64_t>::max()) toml_value = '"' + toml_value + '"';
    text += std::string(name) + " = " + toml_value + "\n";
  });
  return text;
}

nlohmann::json FitSettings::with_defaults(const nlohmann::json& recorded) {
  nlohmann::json settings = nlohmann::json::object();
  const FitSettings defaults;
  for_each(defaults, [&](const char* name, const auto& value, const std::string&) {
    if constexpr (!is_kind_option<decltype(value)>) settings[name] = value;
  });
  settings.update(recorded);
  const std::string kind = settings.at("kind").is_string() ? settings.at("kind").get<std::string>() : "";
  nlohmann::json kind_defaults = nlohmann::json::object();
  if (std::ranges::count(model::drafter_kinds(), kind) > 0)
    kind_defaults = model::options_from_settings(kind, model::settings_from_options(kind, {}));
  for (const model::DrafterOption& option : model::drafter_options()) {
    if (!kind_defaults.contains(option.name))
      settings.erase(option.name);
    else if (!settings.contains(option.name))
      settings[option.name] = kind_defaults.at(option.name);
  }
  return settings;
}

bool FitSettings::same_weights(const nlohmann::json& left, const nlohmann::json& right) {
  nlohmann::json first = with_defaults(left), second = with_defaults(right);
  for (const std::string& name : may_differ_on_resume) {
    if (name == "init-heads") continue;  // read at the beginning only, but all weights depend on it
    first.erase(name);
    second.erase(name);
  }
  return first == second;
}

void FitSettings::check_continues(const nlohmann::json& recorded) const {
  const nlohmann::json settings = to_json(), recorded_settings = with_defaults(recorded);
  for (const auto& [name, value] : settings.items()) {
    if (may_differ_on_resume.contains(name)) continue;
    const nlohmann::json& before = recorded_settings.at(name);
    if (name == "device" && before.is_string() && device_type(before) == device_type(value)) continue;
    if (before != value) {
      throw data::InputError("Setting --" + name + " is " + value.dump() +
                             ", but the run to continue was started with " + before.dump() +
                             ": give the same value, or begin a new run in another folder.");
    }
  }
}

}  // namespace clover::train
