#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace clover::model {

/// The declaration of one setting of a kind of drafter.  A kind lists its settings once, in its own file; the
/// reader of config.json, `fit`, `init`, TOML files and --help follow from the list.
///
/// A value has two forms.  config.json holds numbers, booleans, names and lists; the command line and TOML
/// have the same, except that a list is a text such as "10,20".
class Setting {
 public:
  enum class Type { integer, number, boolean, choice, layers };

  /// A whole number from `low` to `high`.
  static Setting integer(std::string name, int64_t usual, int64_t low, int64_t high, std::string help);
  /// A finite number from `low` to `high`.
  static Setting number(std::string name, double usual, double low, double high, std::string help);
  static Setting boolean(std::string name, bool usual, std::string help);
  /// One of `names`; the first is the default.
  static Setting choice(std::string name, std::vector<std::string> names, std::string help);
  /// Ascending numbers of the target's layers, from 1 on, the last `left_out` left out; none by default.
  static Setting layers(std::string name, int64_t left_out, std::string help);

  const std::string& name() const { return name_; }  // in config.json: "gate_groups"
  std::string option_name() const;                   // on the command line: "gate-groups"
  const std::string& help() const { return help_; }
  Type type() const { return type_; }
  const nlohmann::json& usual() const { return usual_; }  // the default, as config.json holds it

  /// `value`, which config.json of heads of `kind` holds for a target of `layers` layers.  InputError when it
  /// has another type or is out of bounds.
  nlohmann::json checked(const std::string& kind, const nlohmann::json& value, int64_t layers) const;

  /// A value of the command line as config.json holds it.  InputError as `checked`, naming the option.
  nlohmann::json of_option(const nlohmann::json& value) const;
  /// The inverse: a value of config.json as the command line has it.
  nlohmann::json to_option(const nlohmann::json& value) const;

 private:
  Setting(Type type, std::string name, nlohmann::json usual, std::string help)
      : type_(type), name_(std::move(name)), help_(std::move(help)), usual_(std::move(usual)) {}
  bool allows(const nlohmann::json& value, int64_t layers) const;
  std::string expected(int64_t layers) const;  // "an integer from 1 to 16"

  Type type_;
  std::string name_, help_;
  nlohmann::json usual_;
  double low_ = 0, high_ = 0;       // of a number
  int64_t least_ = 0, most_ = 0;    // of an integer
  int64_t left_out_ = 0;            // of layers
  std::vector<std::string> names_;  // of a choice
};

/// The number of layers of a target that is not known yet.
constexpr int64_t any_layers = std::numeric_limits<int64_t>::max();

/// All settings of a kind: `given`, checked, and the defaults of the others.  InputError for a key that
/// `settings` do not list and for a value that one of them refuses.  `layers`: how many the target has.
nlohmann::json complete_settings(const std::string& kind, const std::vector<Setting>& settings,
                                 const nlohmann::json& given, int64_t layers = any_layers);

/// A setting as the command lines declare it: of one kind, or of several that name it alike.
struct DrafterOption {
  std::string name;  // "gate-groups", without the dashes
  std::string help;  // names the kinds, unless all have it
  Setting::Type type;
  nlohmann::json usual;            // as the command line has it; null where the kinds' defaults differ
  std::vector<std::string> kinds;  // those that have the setting
};

/// The settings of all kinds of drafters, in the order of the kinds and of their declarations.
const std::vector<DrafterOption>& drafter_options();

/// What the heads of a run or of `init` are made with: all settings of `kind` as config.json holds them.
/// `given`: option names and values; null stands for the default.  InputError for a value out of bounds, and
/// for one that the kind does not have unless it is the option's default.
nlohmann::json drafter_settings(const std::string& kind, const nlohmann::json& given);

/// The same settings by option name, each as the command line has it.
nlohmann::json drafter_options_of(const std::string& kind, const nlohmann::json& settings);

}  // namespace clover::model
