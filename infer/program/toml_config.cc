#include "infer/program/toml_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "data/files/error.h"

namespace clover::infer {
namespace {

constexpr char bracket_mark = '\x01';  // put before a value in brackets (keep_brackets)

bool takes_several_values(const CLI::Option* option) {
  return option != nullptr && option->get_allow_extra_args();
}

/// `value`, after bracket_mark where keep_brackets needs it.
std::string with_mark(const CLI::Option* option, const std::string& value) {
  const bool bracketed = value.size() >= 2 && value.front() == '[' && value.back() == ']';
  return takes_several_values(option) && bracketed ? bracket_mark + value : value;
}

/// The shortest text that reads back as `value`.
std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

/// A TOML value as it would be typed on the command line.
std::string command_line_text(const toml::node& node, const std::string& key) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* real = node.as_floating_point()) return number_text(real->get());
  if (const auto* boolean = node.as_boolean()) return boolean->get() ? "true" : "false";
  std::ostringstream where;
  where << node.source();
  throw data::InputError(where.str() + ": key \"" + key +
                         "\": expected a text, a number, true, false or a list of them");
}

/// An option's value as TOML: unchanged where TOML reads the same number or bool back, otherwise a quoted
/// string.
std::string toml_text(const std::string& value) {
  try {
    const toml::table table = toml::parse("value = " + value);
    const toml::node& node = *table.get("value");
    if (table.size() == 1 && !node.is_string() && node.is_value() && command_line_text(node, "") == value)
      return value;
  } catch (const toml::parse_error&) {
  } catch (const data::InputError&) {
  }
  std::ostringstream quoted;
  // Only basic strings: a multi-line literal string would lose a line feed at its beginning when it is read.
  const toml::value<std::string> text(value);
  quoted << toml::toml_formatter(text, toml::format_flags::allow_unicode_strings);
  return quoted.str();
}

}  // namespace

std::vector<std::string> values_of(const CLI::Option& option) {
  if (option.count() > 0) return option.reduced_results();
  const std::string& text = option.get_default_str();
  if (text.empty() || !takes_several_values(&option))
    return text.empty() ? std::vector<std::string>{} : std::vector{text};
  // CLI11 keeps a default list as one text: its items between brackets, separated by commas or blanks.
  std::vector<std::string> items;
  for (size_t begin = 0; (begin = text.find_first_not_of("[], ", begin)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of("[], ", begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return items;
}

std::string TomlConfig::to_config(const CLI::App* app, bool default_also, bool, std::string) const {
  std::string text;
  for (const CLI::Option* option : app->get_options({})) {
    if (!option->get_configurable() || option->get_lnames().empty()) continue;
    if (!default_also && option->count() == 0) continue;
    const std::vector<std::string> values = values_of(*option);
    if (values.empty()) continue;
    std::string list;
    for (const std::string& value : values) list += (list.empty() ? "" : ", ") + toml_text(value);
    const bool single = values.size() == 1 && option->get_items_expected_max() <= 1;
    text += option->get_lnames().front() + " = " + (single ? list : "[" + list + "]") + "\n";
  }
  return text;
}

std::vector<CLI::ConfigItem> TomlConfig::from_config(std::istream& in) const {
  toml::table table;
  try {
    table = toml::parse(in);
  } catch (const toml::parse_error& error) {
    std::ostringstream where;
    where << error.source().begin;
    throw data::InputError(where.str() + ": " + std::string(error.description()));
  }
  std::vector<CLI::ConfigItem> items;
  for (const auto& [key, node] : table) {
    CLI::ConfigItem item;
    item.name = std::string(key.str());
    const CLI::Option* option = app_.get_option_no_throw("--" + item.name);
    if (const toml::table* inner =
            node.as_table()) {  // no option is a table: check_config_keys (command_line.cc) refuses it
      item.parents = {item.name};
      item.name = inner->empty() ? "" : std::string(inner->begin()->first.str());
    } else if (const toml::array* list = node.as_array()) {
      for (const toml::node& element : *list)
        item.inputs.push_back(with_mark(option, command_line_text(element, item.name)));
    } else {
      item.inputs.push_back(with_mark(option, command_line_text(node, item.name)));
    }
    items.push_back(std::move(item));
  }
  return items;
}

void keep_brackets(CLI::App& app, std::vector<std::string>& arguments) {
  const CLI::Option* option = nullptr;
  for (std::string& argument : arguments) {
    if (argument.rfind("--", 0) != 0) {
      argument = with_mark(option, argument);
      continue;
    }
    const size_t equals = argument.find('=');
    option = app.get_option_no_throw(argument.substr(0, equals));
    if (equals != std::string::npos)
      argument = argument.substr(0, equals + 1) + with_mark(option, argument.substr(equals + 1));
  }
  for (CLI::Option* declared : app.get_options()) {
    if (!takes_several_values(declared)) continue;
    declared->transform(
        [](std::string value) { return value.starts_with(bracket_mark) ? value.substr(1) : value; });
  }
}

}  // namespace clover::infer
