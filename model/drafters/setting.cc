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

constexpr size_t longest_excerpt = 80;  // of a wrong value in a message

bool is_whole_number(const json& value, int64_t least, int64_t most) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) return false;
  return value.get<int64_t>() >= least && value.get<int64_t>() <= most;
}

bool is_ascending(const json& list, int64_t least, int64_t most) {
  if (!list.is_array()) return false;
  for (const json& item : list) {
    if (!is_whole_number(item, least, most)) return false;
    least = item.get<int64_t>() + 1;
  }
  return true;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

/// The list of a text such as "10,20"; null for any other text.  A number begins with no zero.
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

Setting Setting::integer(std::string name, int64_t usual, int64_t low, int64_t high, std::string help) {
  Setting setting(Type::integer, std::move(name), usual, std::move(help));
  setting.least_ = low, setting.most_ = high;
  return setting;
}

Setting Setting::number(std::string name, double usual, double low, double high, std::string help) {
  Setting setting(Type::number, std::move(name), usual, std::move(help));
  setting.low_ = low, setting.high_ = high;
  return setting;
}

Setting Setting::boolean(std::string name, bool usual, std::string help) {
  return {Type::boolean, std::move(name), usual, std::move(help)};
}

Setting Setting::choice(std::string name, std::vector<std::string> names, std::string help) {
  Setting setting(Type::choice, std::move(name), names.front(), std::move(help));
  setting.names_ = std::move(names);
  return setting;
}

Setting Setting::layers(std::string name, int64_t left_out, std::string help) {
  Setting setting(Type::layers, std::move(name), json::array(), std::move(help));
  setting.left_out_ = left_out;
  return setting;
}

std::string Setting::option_name() const {
  std::string option = name_;
  std::ranges::replace(option, '_', '-');
  return option;
}

bool Setting::allows(const json& value, int64_t layers) const {
  switch (type_) {
    case Type::integer:
      return is_whole_number(value, least_, most_);
    case Type::number:
      return value.is_number() && value.get<double>() >= low_ && value.get<double>() <= high_;
    case Type::boolean:
      return value.is_boolean();
    case Type::choice:
      return value.is_string() && std::ranges::find(names_, value.get<std::string>()) != names_.end();
    case Type::layers:
      return is_ascending(value, 1, layers - left_out_);
  }
  return false;
}

std::string Setting::expected(int64_t layers) const {
  switch (type_) {
    case Type::integer:
      return "an integer from " + std::to_string(least_) + " to " + std::to_string(most_);
    case Type::number:
      return "a number from " + number_text(low_) + " to " + number_text(high_);
    case Type::boolean:
      return "true or false";
    case Type::choice:
      return "one of: " + joined(names_);
    case Type::layers:
      return layers == any_layers
                 ? "ascending numbers of layers, such as 10,20"
                 : "a list of ascending integers from 1 to " + std::to_string(layers - left_out_);
  }
  return "";
}

json Setting::checked(const std::string& kind, const json& value, int64_t layers) const {
  if (!allows(value, layers)) refuse_setting(kind, name_, value, expected(layers));
  return type_ == Type::number ? json(value.get<double>()) : value;
}

json Setting::of_option(const json& value) const {
  json own = value;
  if (type_ == Type::layers)
    own = value.is_string() ? list_of_text(value.get_ref<const std::string&>()) : json();
  if (!allows(own, any_layers))
    throw InputError("Setting --" + option_name() + " is " + value.dump().substr(0, longest_excerpt) +
                     ", expected " + expected(any_layers) + ".");
  return type_ == Type::number ? json(own.get<double>()) : own;
}

json Setting::to_option(const json& value) const {
  return type_ == Type::layers ? json(text_of_list(value)) : value;
}

json complete_settings(const std::string& kind, const std::vector<Setting>& settings, const json& given,
                       int64_t layers) {
  if (!given.is_object())
    throw InputError("Settings of drafter " + kind + " are " + given.dump().substr(0, longest_excerpt) +
                     ", expected a JSON object.");
  json all = json::object();
  for (const Setting& setting : settings)
    all[setting.name()] = given.contains(setting.name())
                              ? setting.checked(kind, given.at(setting.name()), layers)
                              : setting.usual();
  for (const auto& [key, value] : given.items())
    if (!all.contains(key)) throw InputError("Setting \"" + key + "\" is unknown to drafter " + kind + ".");
  return all;
}

namespace {

/// "clover, eagle: 1 to 4 layers"; the kinds are left out where all have the setting.
std::string help_of(const DrafterOption& option, const std::vector<DrafterKind>& all) {
  std::vector<std::pair<std::string, std::vector<std::string>>> texts;  // a help text and its kinds
  std::vector<std::string> defaults;                                    // "medusa 1", for each kind
  for (const DrafterKind& kind : all) {
    const Setting* setting = kind.setting_of_option(option.name);
    if (setting == nullptr) continue;
    const json usual = setting->to_option(setting->usual());
    defaults.push_back(kind.name + " " + (usual.is_string() ? usual.get<std::string>() : usual.dump()));
    const auto same =
        std::ranges::find_if(texts, [&](const auto& text) { return text.first == setting->help(); });
    if (same != texts.end())
      same->second.push_back(kind.name);
    else
      texts.push_back({setting->help(), {kind.name}});
  }
  std::string help;
  for (const auto& [text, kinds] : texts)
    help += (help.empty() ? "" : "; ") + (kinds.size() == all.size() ? "" : joined(kinds) + ": ") + text;
  return option.usual.is_null() ? help + "; default: " + joined(defaults) : help;
}

std::vector<DrafterOption> make_drafter_options() {
  std::vector<DrafterOption> options;
  for (const DrafterKind& kind : drafter_table()) {
    for (const Setting& setting : kind.settings) {
      const std::string name = setting.option_name();
      auto option = std::ranges::find(options, name, &DrafterOption::name);
      const json usual = setting.to_option(setting.usual());
      if (option == options.end())
        option = options.insert(options.end(), {name, "", setting.type(), usual, {}});
      else if (option->usual != usual)
        option->usual = nullptr;
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

json drafter_settings(const std::string& kind_name, const json& given) {
  const DrafterKind& kind = drafter_kind(kind_name);
  json own = json::object();
  for (const DrafterOption& option : drafter_options()) {
    const auto found = given.find(option.name);
    if (found == given.end() || found->is_null()) continue;
    if (const Setting* setting = kind.setting_of_option(option.name))
      own[setting->name()] = setting->of_option(*found);
    else if (*found != option.usual)
      throw InputError("Setting --" + option.name + ": heads of kind " + kind_name +
                       " have none; leave it out, or give another --kind.");
  }
  return complete_settings(kind_name, kind.settings, own);
}

json drafter_options_of(const std::string& kind_name, const json& settings) {
  json options = json::object();
  for (const Setting& setting : drafter_kind(kind_name).settings)
    options[setting.option_name()] = setting.to_option(settings.at(setting.name()));
  return options;
}

}  // namespace clover::model
