#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <string>
#include <vector>

namespace clover::infer {

/// Reads and writes --config files as TOML 1.0: strings with any escape, `#` in quotes and arrays arrive as
/// they stand, which CLI11's own reader does not promise.  InputError with the line when a file is no TOML.
class TomlConfig : public CLI::Config {
 public:
  explicit TomlConfig(const CLI::App& app) : app_(app) {}
  std::string to_config(const CLI::App* app, bool default_also, bool write_description,
                        std::string prefix) const override;
  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override;

 private:
  const CLI::App& app_;
};

/// What was given for an option, or its default; empty when there is neither.
std::vector<std::string> values_of(const CLI::Option& option);

/// CLI11 takes a value in brackets for a list: "[END]" would become "END".  Marks such values of options that
/// take several, on the command line and in files, and takes the marks away when they are read.
void keep_brackets(CLI::App& app, std::vector<std::string>& arguments);

}  // namespace clover::infer
