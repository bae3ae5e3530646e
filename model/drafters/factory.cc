#include "model/drafters/factory.h"

#include <algorithm>
#include <array>

#include "data/files/error.h"

namespace clover::model {

// Each is defined in its kind's file.
std::shared_ptr<Drafter> make_clover(const DrafterSpec& spec);
std::shared_ptr<Drafter> make_clover2(const DrafterSpec& spec);
std::shared_ptr<Drafter> make_eagle(const DrafterSpec& spec);
std::shared_ptr<Drafter> make_eagle3(const DrafterSpec& spec);
std::shared_ptr<Drafter> make_medusa(const DrafterSpec& spec);
std::shared_ptr<Drafter> make_redrafter(const DrafterSpec& spec);

std::span<const DrafterFactory> drafter_factories() {
  static constexpr const char* clover[] = {"heads", "regression", "block", "gate_groups", "tap_layers"};
  static constexpr const char* clover2[] = {"heads", "augmenting_layers"};
  static constexpr const char* medusa[] = {"heads"};
  static constexpr const char* redrafter[] = {"heads", "layers", "exit_dim", "recurrence"};
  static constexpr const char* eagle[] = {"heads", "fc_bias"};
  static constexpr const char* eagle3[] = {"heads", "tap_layers", "norm_before_residual"};
  static constexpr std::array<DrafterFactory, 6> factories{{
      {"clover", make_clover, clover},
      {"clover2", make_clover2, clover2},
      {"eagle", make_eagle, eagle},
      {"eagle3", make_eagle3, eagle3},
      {"medusa", make_medusa, medusa},
      {"redrafter", make_redrafter, redrafter},
  }};
  return factories;
}

SettingsReader::SettingsReader(const char* kind, const nlohmann::json& settings)
    : kind_(kind), settings_(settings) {
  if (!settings.is_object()) {
    throw data::InputError("Settings of drafter " + kind_ + " are " + settings.dump() +
                           ", expected a JSON object.");
  }
}

const nlohmann::json* SettingsReader::find(const std::string& key) {
  read_.push_back(key);
  const auto found = settings_.find(key);
  return found == settings_.end() ? nullptr : &*found;
}

int64_t SettingsReader::integer(const std::string& key, int64_t fallback, int64_t low, int64_t high) {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (!value->is_number_integer() || value->get<int64_t>() < low || value->get<int64_t>() > high) {
    throw data::InputError("Setting \"" + key + "\" of drafter " + kind_ + " is " + value->dump() +
                           ", expected an integer from " + std::to_string(low) + " to " +
                           std::to_string(high) + ".");
  }
  return value->get<int64_t>();
}

std::vector<int64_t> SettingsReader::ascending(const std::string& key, int64_t low, int64_t high) {
  const nlohmann::json* value = find(key);
  if (!value) return {};
  std::vector<int64_t> numbers;
  bool good = value->is_array();
  for (int64_t least = low; const nlohmann::json& item : *value) {
    good = good && item.is_number_integer() && item.get<int64_t>() >= least && item.get<int64_t>() <= high;
    if (!good) break;
    numbers.push_back(item.get<int64_t>());
    least = numbers.back() + 1;
  }
  if (good) return numbers;
  throw data::InputError("Setting \"" + key + "\" of drafter " + kind_ + " is " +
                         value->dump().substr(0, 80) + ", expected a list of ascending integers from " +
                         std::to_string(low) + " to " + std::to_string(high) + ".");
}

std::string SettingsReader::choice(const std::string& key, const std::string& fallback,
                                   std::initializer_list<const char*> allowed) {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  std::string names;
  for (const char* name : allowed) {
    if (value->is_string() && value->get<std::string>() == name) return name;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw data::InputError("Setting \"" + key + "\" of drafter " + kind_ + " is " + value->dump() +
                         ", expected one of: " + names + ".");
}

bool SettingsReader::flag(const std::string& key, bool fallback) {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  throw data::InputError("Setting \"" + key + "\" of drafter " + kind_ + " is " + value->dump() +
                         ", expected true or false.");
}

void SettingsReader::finish() const {
  for (const auto& [key, value] : settings_.items()) {
    if (std::find(read_.begin(), read_.end(), key) == read_.end()) {
      throw data::InputError("Setting \"" + key + "\" is unknown to drafter " + kind_ + ".");
    }
  }
}

}  // namespace clover::model
