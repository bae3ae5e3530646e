#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <string>
#include <vector>

namespace clover::infer {

/// Reads and writes --config files as TOML 1.0.  CLI11's own reader fails on some escapes in strings, on `#`
/// in quotes and on arrays; this one does not.  InputError with the line number when a file is not valid
/// TOML.
class TomlConfig : public CLI::Config {
 public:
  /// `app`: the command whose options are the keys of the file; borrowed.
  explicit TomlConfig(const CLI::App& app) : app_(app) {}
  std::string to_config(const CLI::App* app, bool default_also, bool write_description,
                        std::string prefix) const override;
  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override;

 private:
  const CLI::App& app_;
};

/// The values given for an option, or its default; empty when it has neither.
std::vector<std::string> values_of(const CLI::Option& option);

/// Keeps CLI11 from reading a value in brackets as a list, which would turn "[END]" into "END".  Where an
/// option takes several values, it prefixes such arguments with the byte 1 as a mark, and declares a
/// transformation that removes the mark when CLI11 reads the value.  TomlConfig marks the values of files in
/// the same way.
void keep_brackets(CLI::App& app, std::vector<std::string>& arguments);

}  // namespace clover::infer
