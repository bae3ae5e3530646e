#include "model/target/rope.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace clover::model {
namespace {

using data::InputError;
using nlohmann::json;
using Kind = Rope::Kind;

const std::map<std::string, Kind> kinds{{"default", Kind::plain},    {"linear", Kind::linear},
                                        {"dynamic", Kind::dynamic},  {"proportional", Kind::proportional},
                                        {"llama3", Kind::llama3},    {"yarn", Kind::yarn},
                                        {"longrope", Kind::longrope}};

std::string name_of(Kind kind) {
  return std::find_if(kinds.begin(), kinds.end(), [&](const auto& named) { return named.second == kind; })
      ->first;
}

/// Whether the value is false in Python, as null, 0, "" and {} are: transformers takes that for no settings.
bool is_python_false(const json& value) {
  return value.is_null() || value == json(false) || value == json(0) || value == json("") ||
         (value.is_structured() && value.empty());
}

/// The key of config.json that has the RoPE settings, or null.  As in transformers 5, a non-empty
/// "rope_scaling" replaces "rope_parameters".
const char* settings_key(const json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (config.contains(key) && !is_python_false(config.at(key))) return key;
  return nullptr;
}

/// YaRN's "attention_factor", or its default, which depends on `factor` and on the two mscale keys.
double yarn_scale(const ConfigKeys& keys, double factor) {
  if (keys.has("attention_factor")) return keys.positive_number("attention_factor");
  const auto scale_for = [factor](double weight) {
    return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1;
  };
  const double mscale = keys.number_unless_zero("mscale", 0),
               mscale_all_dim = keys.number_unless_zero("mscale_all_dim", 0);
  return mscale != 0 && mscale_all_dim != 0 ? scale_for(mscale) / scale_for(mscale_all_dim) : scale_for(1);
}

/// A list of `pairs` positive numbers; InputError for anything else.
std::vector<double> read_factors(const ConfigKeys& keys, const char* key, int64_t pairs) {
  const json& list = keys.at(key);
  std::vector<double> factors;
  if (list.is_array() && std::ssize(list) == pairs) {
    for (const json& factor : list)
      if (factor.is_number() && factor.get<double>() > 0) factors.push_back(factor.get<double>());
  }
  if (std::ssize(factors) != pairs)
    keys.refuse(key, "a list of " + std::to_string(pairs) + " positive numbers, one of each pair of a head");
  return factors;
}

void read_longrope(const ConfigKeys& keys, int64_t head_dim, int64_t positions, Rope& rope) {
  rope.short_factors = read_factors(keys, "short_factor", head_dim / 2);
  rope.long_factors = read_factors(keys, "long_factor", head_dim / 2);
  rope.factor = keys.positive_number_or("factor", static_cast<double>(positions) / rope.pretraining_context);
  const double default_attention_factor =
      rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(rope.pretraining_context));
  rope.attention_factor = keys.positive_number_or("attention_factor", default_attention_factor);
}

/// Reads the settings that rope.kind has.
void read_kind(const ConfigKeys& keys, int64_t head_dim, int64_t positions, Rope& rope) {
  switch (rope.kind) {
    case Kind::plain:
      return;
    case Kind::linear:
      rope.factor = keys.positive_number("factor");
      return;
    case Kind::dynamic:
      rope.factor = keys.positive_number("factor");
      rope.pretraining_context = static_cast<double>(positions);
      return;
    case Kind::proportional:
      rope.factor = keys.positive_number_or("factor", 1);
      return;
    case Kind::llama3:
      rope.factor = keys.positive_number("factor");
      rope.low_freq_factor = keys.positive_number("low_freq_factor");
      rope.high_freq_factor = keys.positive_number("high_freq_factor");
      return;
    case Kind::yarn:
      // transformers requires the key; where it is null, the factor is the ratio of the two context lengths.
      rope.factor = keys.is_null("factor") ? static_cast<double>(positions) / rope.pretraining_context
                                           : keys.positive_number("factor");
      rope.beta_fast = keys.number_unless_zero("beta_fast", 32);
      rope.beta_slow = keys.number_unless_zero("beta_slow", 1);
      rope.truncate = keys.flag_or("truncate", true);
      rope.attention_factor = yarn_scale(keys, rope.factor);
      return;
    case Kind::longrope:
      read_longrope(keys, head_dim, positions, rope);
  }
}

/// Reads "partial_rotary_factor" from the RoPE settings, else from the top level of config.json.  Only the
/// kind proportional uses it; with other kinds whole heads must rotate.
void read_rotary_fraction(const ConfigKeys& settings, const ConfigKeys& top_level, int64_t head_dim,
                          std::vector<std::string>& notes, Rope& rope) {
  const ConfigKeys& source = settings.has("partial_rotary_factor") ? settings : top_level;
  const double share = source.positive_number_or("partial_rotary_factor", 1);
  if (rope.kind == Kind::proportional) {
    if (share > 1) source.refuse("partial_rotary_factor", "a number up to 1");
    rope.rotary_fraction = share;
  } else if (static_cast<int64_t>(share * static_cast<double>(head_dim)) == head_dim) {
    return;
  } else if (rope.kind == Kind::plain) {
    notes.push_back(source.where() +
                    ": \"partial_rotary_factor\" is ignored, as transformers does in this family");
  } else {
    source.refuse("partial_rotary_factor", "1: heads of this family are turned as a whole");
  }
}

/// Refuses settings nested by type of layer: layers of the supported families are all of one type.
void check_not_nested(const json& settings, const ConfigKeys& keys) {
  for (const auto& [key, value] : settings.items()) {
    if (value.is_object())
      keys.refuse(key, "no settings of single layer types, which this family does not have");
  }
}

/// YaRN's ramp over the pairs of a head, from 0 at high frequencies, which stay as they are, to 1 at low
/// frequencies, which are divided by the factor.
double yarn_ramp(const Rope& rope, int64_t head_dim, double pair) {
  const double width = static_cast<double>(head_dim);
  // The pair that rotates `turns` times within the pre-training context.
  const auto pair_of_turns = [&](double turns) {
    return width * std::log(rope.pretraining_context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = pair_of_turns(rope.beta_fast), high = pair_of_turns(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  return std::clamp((pair - low) / (high - low), 0.0, 1.0);
}

/// Llama 3: low frequencies are divided by the factor, high ones stay, and those between are interpolated.
double llama3_frequency(const Rope& rope, double frequency) {
  const double turns = rope.pretraining_context * frequency / (2 * std::numbers::pi);
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double unscaled_share =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return unscaled_share * frequency + (1 - unscaled_share) * frequency / rope.factor;
}

}  // namespace

std::vector<double> Rope::frequencies(int64_t head_dim, int64_t length) const {
  const double width = static_cast<double>(head_dim),
               tokens = std::max(static_cast<double>(length), pretraining_context);
  double base = theta;
  if (kind == Kind::dynamic)
    base *= std::pow(factor * tokens / pretraining_context - (factor - 1), width / (width - 2));
  std::vector<double> frequencies(head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double pair = static_cast<double>(i);
    double frequency = std::pow(base, -2 * pair / width);
    if (kind == Kind::linear || kind == Kind::proportional) frequency /= factor;
    if (kind == Kind::proportional && pair >= std::floor(rotary_fraction * width / 2)) frequency = 0;
    if (kind == Kind::llama3) frequency = llama3_frequency(*this, frequency);
    if (kind == Kind::longrope) frequency /= (tokens > pretraining_context ? long_factors : short_factors)[i];
    if (kind == Kind::yarn) {
      const double scaled_share = yarn_ramp(*this, head_dim, pair);
      frequency = frequency / factor * scaled_share + frequency * (1 - scaled_share);
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

Rotation Rope::rotation(int64_t head_dim) const {
  Rotation rotation{frequencies(head_dim, 0), attention_factor};
  if (!depends_on_length()) return rotation;
  rotation.fixed_rotation_length = static_cast<int64_t>(pretraining_context);
  rotation.frequencies_at = [rope = *this, head_dim](int64_t length) {
    return rope.frequencies(head_dim, length);
  };
  return rotation;
}

int64_t Rope::context(int64_t positions) const {
  double tokens =
      static_cast<double>(kind == Kind::yarn ? pretraining_context : static_cast<double>(positions));
  if (kind == Kind::linear || kind == Kind::dynamic || kind == Kind::proportional || kind == Kind::yarn)
    tokens *= std::max(factor, 1.0);
  return static_cast<int64_t>(std::clamp(tokens, 1.0, static_cast<double>(ConfigKeys::max_integer)));
}

json Rope::settings() const {
  json settings = {{"type", name_of(kind)}, {"theta", theta}};
  if (kind != Kind::plain) settings["factor"] = factor;
  if (pretraining_context > 0) settings["original_max_position_embeddings"] = pretraining_context;
  if (kind == Kind::proportional) settings["partial_rotary_factor"] = rotary_fraction;
  if (kind == Kind::llama3)
    settings.update({{"low_freq_factor", low_freq_factor}, {"high_freq_factor", high_freq_factor}});
  if (kind == Kind::yarn)
    settings.update({{"beta_fast", beta_fast}, {"beta_slow", beta_slow}, {"truncate", truncate}});
  if (kind == Kind::yarn || kind == Kind::longrope) settings["attention_factor"] = attention_factor;
  if (kind == Kind::longrope)
    settings.update({{"short_factor", short_factors}, {"long_factor", long_factors}});
  return settings;
}

Rope read_rope(const json& config, const std::string& where, int64_t head_dim, int64_t positions,
               std::vector<std::string>& notes) {
  const ConfigKeys top_level(config, where);
  Rope rope;
  rope.theta = top_level.positive_number_or("rope_theta", rope.theta);
  const char* key = settings_key(config);
  if (key == nullptr) {
    read_rotary_fraction(top_level, top_level, head_dim, notes, rope);
    return rope;
  }
  const json& settings = config.at(key);
  if (!settings.is_object()) top_level.refuse(key, "an object");
  const ConfigKeys keys(settings, where + ", " + key);
  check_not_nested(settings, keys);
  rope.theta = keys.positive_number_or("rope_theta", rope.theta);
  const std::string name = keys.text_or("rope_type", keys.text_or("type", "default"));
  const auto kind = kinds.find(name);
  if (kind == kinds.end()) {
    throw InputError(
        keys.where() + ": rope scaling \"" + name.substr(0, 80) +
        "\" is not supported; expected default, linear, dynamic, proportional, llama3, yarn or longrope.");
  }
  rope.kind = kind->second;
  if (rope.kind == Kind::llama3 || rope.kind == Kind::yarn || rope.kind == Kind::longrope) {
    const ConfigKeys& source = top_level.has("original_max_position_embeddings") ? top_level : keys;
    rope.pretraining_context =
        source.positive_number_or("original_max_position_embeddings", static_cast<double>(positions));
  }
  read_kind(keys, head_dim, positions, rope);
  read_rotary_fraction(keys, top_level, head_dim, notes, rope);
  // The frequencies of short texts and of the longest ones must be finite.
  for (const int64_t length : {int64_t{1}, 2 * rope.context(positions)}) {
    for (const double frequency : rope.frequencies(head_dim, length))
      if (!std::isfinite(frequency) || !std::isfinite(rope.attention_factor))
        throw InputError(keys.where() +
                         ": these numbers make angles that are no numbers; expected those the model "
                         "was trained with.");
  }
  const std::string newer_key = "rope_parameters";
  if (key != newer_key && config.contains(newer_key) && config.at(newer_key).is_object() &&
      config.at(newer_key).contains("rope_theta") &&
      config.at(newer_key).at("rope_theta") != json(rope.theta)) {
    notes.push_back(
        where +
        ": \"rope_scaling\" takes the place of \"rope_parameters\", as in transformers: rope_theta is " +
        json(rope.theta).dump() + ", not " + config.at(newer_key).at("rope_theta").dump());
  }
  return rope;
}

}  // namespace clover::model
