#include "model/drafters/setting.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

#include "data/files/error.h"
#include "model/drafters/factory.h"

namespace clover::model {
namespace {

using data::InputError;
using nlohmann::json;

constexpr size_t max_excerpt = 80;  // characters of a wrong value that a message shows

bool is_whole_number(const json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) return false;
  return value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

/// Whether `list` is an array of ascending whole numbers from `low` to `high`.
bool is_ascending(const json& list, int64_t low, int64_t high) {
  if (!list.is_array()) return false;
  for (const json& item : list) {
    if (!is_whole_number(item, low, high)) return false;
    low = item.get<int64_t>() + 1;
  }
  return true;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The JSON array of a text such as "10,20"; null if the text is no such list or a number begins with 0.
json list_of_text(const std::string& text) {
  json list = json::array();
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (!list.empty() && *at++ != ',') return nullptr;
    int64_t number = 0;
    const auto [read, error] = std::from_chars(at, end, number);
    if (error != std::errc() || *at == '0') return nullptr;
    list.push_back(number);
    at = read;
  }
  return list;
}

std::string text_of_list(const json& list) {
  std::string text;
  for (const json& item : list) text += (text.empty() ? "" : ",") + item.dump();
  return text;
}

std::string number_text(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

}  // namespace

Setting Setting::integer(std::string name, int64_t default_value, int64_t low, int64_t high,
                         std::string help) {
  Setting setting(Type::integer, std::move(name), default_value, std::move(help));
  setting.min_integer_ = low, setting.max_integer_ = high;
  return setting;
}

Setting Setting::number(std::string name, double default_value, double low, double high, std::string help) {
  Setting setting(Type::number, std::move(name), default_value, std::move(help));
  setting.min_number_ = low, setting.max_number_ = high;
  return setting;
}

Setting Setting::boolean(std::string name, bool default_value, std::string help) {
  return {Type::boolean, std::move(name), default_value, std::move(help)};
}

Setting Setting::choice(std::string name, std::vector<std::string> names, std::string help) {
  Setting setting(Type::choice, std::move(name), names.front(), std::move(help));
  setting.names_ = std::move(names);
  return setting;
}

Setting Setting::layers(std::string name, int64_t excluded_last_count, std::string help) {
  Setting setting(Type::layers, std::move(name), json::array(), std::move(help));
  setting.excluded_last_count_ = excluded_last_count;
  return setting;
}

std::string Setting::option_name() const {
  std::string option = name_;
  std::ranges::replace(option, '_', '-');
  return option;
}

bool Setting::allows(const json& value, int64_t layer_count) const {
  switch (type_) {
    case Type::integer:
      return is_whole_number(value, min_integer_, max_integer_);
    case Type::number:
      return value.is_number() && value.get<double>() >= min_number_ && value.get<double>() <= max_number_;
    case Type::boolean:
      return value.is_boolean();
    case Type::choice:
      return value.is_string() && std::ranges::find(names_, value.get<std::string>()) != names_.end();
    case Type::layers:
      return is_ascending(value, 1, layer_count - excluded_last_count_);
  }
  return false;
}

std::string Setting::expected(int64_t layer_count) const {
  switch (type_) {
    case Type::integer:
      return "an integer from " + std::to_string(min_integer_) + " to " + std::to_string(max_integer_);
    case Type::number:
      return "a number from " + number_text(min_number_) + " to " + number_text(max_number_);
    case Type::boolean:
      return "true or false";
    case Type::choice:
      return "one of: " + joined(names_);
    case Type::layers:
      return layer_count == unknown_layer_count ? "ascending numbers of layers, such as 10,20"
                                                : "a list of ascending integers from 1 to " +
                                                      std::to_string(layer_count - excluded_last_count_);
  }
  return "";
}

json Setting::checked(const std::string& kind, const json& value, int64_t layer_count) const {
  if (!allows(value, layer_count)) refuse_setting(kind, name_, value, expected(layer_count));
  return type_ == Type::number ? json(value.get<double>()) : value;
}

json Setting::from_option(const json& value) const {
  json config_value = value;
  if (type_ == Type::layers)
    config_value = value.is_string() ? list_of_text(value.get_ref<const std::string&>()) : json();
  if (!allows(config_value, unknown_layer_count))
    throw InputError("Setting --" + option_name() + " is " + value.dump().substr(0, max_excerpt) +
                     ", expected " + expected(unknown_layer_count) + ".");
  return type_ == Type::number ? json(config_value.get<double>()) : config_value;
}

json Setting::to_option(const json& value) const {
  return type_ == Type::layers ? json(text_of_list(value)) : value;
}

json complete_settings(const std::string& kind, const std::vector<Setting>& settings, const json& given,
                       int64_t layer_count) {
  if (!given.is_object())
    throw InputError("Settings of drafter " + kind + " are " + given.dump().substr(0, max_excerpt) +
                     ", expected a JSON object.");
  json complete = json::object();
  for (const Setting& setting : settings)
    complete[setting.name()] = given.contains(setting.name())
                                   ? setting.checked(kind, given.at(setting.name()), layer_count)
                                   : setting.default_value();
  for (const auto& [key, value] : given.items())
    if (!complete.contains(key))
      throw InputError("Setting \"" + key + "\" is unknown to drafter " + kind + ".");
  return complete;
}

namespace {

/// The help of an option, such as "clover, eagle: 1 to 4 layers", and the defaults if the kinds differ in
/// them.  The kinds are not named if all have the setting.
std::string help_of(const DrafterOption& option, const std::vector<DrafterKind>& all_kinds) {
  std::vector<std::pair<std::string, std::vector<std::string>>> texts;  // a help text and its kinds
  std::vector<std::string> defaults;                                    // "medusa 1", for each kind
  for (const DrafterKind& kind : all_kinds) {
    const Setting* setting = kind.setting_of_option(option.name);
    if (setting == nullptr) continue;
    const json default_value = setting->to_option(setting->default_value());
    defaults.push_back(kind.name + " " +
                       (default_value.is_string() ? default_value.get<std::string>() : default_value.dump()));
    const auto same =
        std::ranges::find_if(texts, [&](const auto& text) { return text.first == setting->help(); });
    if (same != texts.end())
      same->second.push_back(kind.name);
    else
      texts.push_back({setting->help(), {kind.name}});
  }
  std::string help;
  for (const auto& [text, kinds] : texts)
    help +=
        (help.empty() ? "" : "; ") + (kinds.size() == all_kinds.size() ? "" : joined(kinds) + ": ") + text;
  return option.default_value.is_null() ? help + "; default: " + joined(defaults) : help;
}

std::vector<DrafterOption> make_drafter_options() {
  std::vector<DrafterOption> options;
  for (const DrafterKind& kind : drafter_table()) {
    for (const Setting& setting : kind.settings) {
      const std::string name = setting.option_name();
      auto option = std::ranges::find(options, name, &DrafterOption::name);
      const json default_value = setting.to_option(setting.default_value());
      if (option == options.end())
        option = options.insert(options.end(), {name, "", setting.type(), default_value, {}});
      else if (option->default_value != default_value)
        option->default_value = nullptr;
      option->kinds.push_back(kind.name);
    }
  }
  for (DrafterOption& option : options) option.help = help_of(option, drafter_table());
  return options;
}

}  // namespace

const std::vector<DrafterOption>& drafter_options() {
  static const std::vector<DrafterOption> options = make_drafter_options();
  return options;
}

json settings_from_options(const std::string& kind_name, const json& given) {
  const DrafterKind& kind = drafter_kind(kind_name);
  json settings = json::object();
  for (const DrafterOption& option : drafter_options()) {
    const auto found = given.find(option.name);
    if (found == given.end() || found->is_null()) continue;
    if (const Setting* setting = kind.setting_of_option(option.name))
      settings[setting->name()] = setting->from_option(*found);
    else if (*found != option.default_value)
      throw InputError("Setting --" + option.name + ": heads of kind " + kind_name +
                       " have none; leave it out, or give another --kind.");
  }
  return complete_settings(kind_name, kind.settings, settings);
}

json options_from_settings(const std::string& kind_name, const json& settings) {
  json options = json::object();
  for (const Setting& setting : drafter_kind(kind_name).settings)
    options[setting.option_name()] = setting.to_option(settings.at(setting.name()));
  return options;
}

}  // namespace clover::model
