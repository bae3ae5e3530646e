#include "train/commands/drafter_arguments.h"

#include <cstdlib>

#include "infer/program/command_line.h"

namespace clover::train {
namespace {

using model::Setting;

const char* type_name(Setting::Type type) {
  switch (type) {
    case Setting::Type::integer:
      return "INT";
    case Setting::Type::number:
      return "FLOAT";
    case Setting::Type::boolean:
      return "true|false";
    case Setting::Type::choice:
      return "TEXT";
    case Setting::Type::layers:
      return "N,...";
  }
  return "";
}

/// The argument of an option as a JSON number, boolean or string.
nlohmann::json value_of(Setting::Type type, const std::string& text) {
  if (type == Setting::Type::choice || type == Setting::Type::layers) return text;
  if (type == Setting::Type::integer) return std::stoll(text);
  if (type == Setting::Type::number) return std::strtod(text.c_str(), nullptr);
  return text == "true";
}

}  // namespace

CLI::Option* declare_drafter_option(CLI::App& app, const model::DrafterOption& option,
                                    nlohmann::json& value) {
  const Setting::Type type = option.type;
  CLI::Option* declared = app.add_option_function<std::string>(
      "--" + option.name, [type, &value](const std::string& text) { value = value_of(type, text); },
      option.help);
  declared->type_name(type_name(type));
  if (option.default_value.is_string())
    declared->default_str(option.default_value.get<std::string>());
  else if (!option.default_value.is_null())
    declared->default_str(option.default_value.dump());
  if (type == Setting::Type::integer) declared->check(infer::whole_number<int64_t>());
  if (type == Setting::Type::number) declared->check(CLI::Validator(CLI::Number).description(""));
  if (type == Setting::Type::boolean)
    declared->check(CLI::Validator(CLI::IsMember({"true", "false"})).description(""));
  return declared;
}

}  // namespace clover::train
