#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace clover::model {

/// The declaration of one setting of a kind of drafter.  A kind declares its settings once, in its own file.
/// The reader of config.json, the options of `clover-train fit` and `init`, TOML files and --help use that
/// declaration.
///
/// A value has two forms, which differ only for lists: in config.json a list is a JSON array, on the command
/// line and in TOML files it is a text such as "10,20".
class Setting {
 public:
  enum class Type { integer, number, boolean, choice, layers };

  /// A whole number from `low` to `high`.
  static Setting integer(std::string name, int64_t default_value, int64_t low, int64_t high,
                         std::string help);
  /// A finite number from `low` to `high`.
  static Setting number(std::string name, double default_value, double low, double high, std::string help);
  static Setting boolean(std::string name, bool default_value, std::string help);
  /// One of `names`; the first is the default.
  static Setting choice(std::string name, std::vector<std::string> names, std::string help);
  /// A list of layers of the target, numbered from 1, in ascending order.  The last `excluded_last_count`
  /// layers are not allowed.  Empty by default.
  static Setting layers(std::string name, int64_t excluded_last_count, std::string help);

  const std::string& name() const { return name_; }  // in config.json: "gate_groups"
  std::string option_name() const;                   // on the command line: "gate-groups"
  const std::string& help() const { return help_; }
  Type type() const { return type_; }
  const nlohmann::json& default_value() const { return default_value_; }  // as in config.json

  /// Checks a value in config.json, for heads of `kind` and a target with `layer_count` layers, and returns
  /// it; a number becomes a double.  InputError when it has another type or is out of bounds.
  nlohmann::json checked(const std::string& kind, const nlohmann::json& value, int64_t layer_count) const;

  /// Turns a value of the command line into its form in config.json.  InputError, naming the option, when it
  /// has another type or is out of bounds; numbers of layers have no upper bound here, since the target is
  /// not known.
  nlohmann::json from_option(const nlohmann::json& value) const;
  /// The inverse of from_option.
  nlohmann::json to_option(const nlohmann::json& value) const;

 private:
  Setting(Type type, std::string name, nlohmann::json default_value, std::string help)
      : type_(type),
        name_(std::move(name)),
        help_(std::move(help)),
        default_value_(std::move(default_value)) {}
  bool allows(const nlohmann::json& value, int64_t layer_count) const;
  /// What is allowed, for messages: "an integer from 1 to 16".
  std::string expected(int64_t layer_count) const;

  Type type_;
  std::string name_, help_;
  nlohmann::json default_value_;               // as in config.json
  double min_number_ = 0, max_number_ = 0;     // for Type::number
  int64_t min_integer_ = 0, max_integer_ = 0;  // for Type::integer
  int64_t excluded_last_count_ = 0;            // for Type::layers
  std::vector<std::string> names_;             // for Type::choice
};

/// In place of the number of the target's layers while the target is not known: allows all layers.
constexpr int64_t unknown_layer_count = std::numeric_limits<int64_t>::max();

/// All settings of a kind, as in config.json: those of `given`, checked, and the defaults of the others.
/// InputError for a key that is not in `settings`, and for a value that is not allowed.  `layer_count`: how
/// many layers the target has.
nlohmann::json complete_settings(const std::string& kind, const std::vector<Setting>& settings,
                                 const nlohmann::json& given, int64_t layer_count = unknown_layer_count);

/// An option of the command line: a setting of one kind, or of several kinds that use the same name.
struct DrafterOption {
  std::string name;  // without the leading dashes: "gate-groups"
  std::string help;  // names the kinds unless all have the setting
  Setting::Type type;
  nlohmann::json default_value;    // as on the command line; null if the kinds' defaults differ
  std::vector<std::string> kinds;  // those that have the setting
};

/// The options for the settings of all kinds, in the order of the kinds and of their declarations.
const std::vector<DrafterOption>& drafter_options();

/// All settings of `kind`, as in config.json, from options of the command line.  `given`: option names and
/// values; null means the default.  InputError for a value that is not allowed, and for an option that the
/// kind does not have, unless its value is the option's default.  Numbers of layers are not compared with the
/// target's.
nlohmann::json settings_from_options(const std::string& kind, const nlohmann::json& given);

/// The inverse of settings_from_options: settings of config.json as option names and values of the command
/// line.
nlohmann::json options_from_settings(const std::string& kind, const nlohmann::json& settings);

}  // namespace clover::model
