#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace clover::infer {

/// The body of a command, run once its options are parsed.  Returns an exit code (infer/program/exit_code.h).
using Action = std::function<int()>;

/// One command of a program: `program NAME --options`.
struct Command {
  std::string name;
  std::string summary;                       // one sentence, for --help
  std::function<Action(CLI::App&)> declare;  // declares the options; the Action reads their values
};

/// The main function of a program with commands.  It finds the command, reads its options and `--config FILE`
/// (TOML with the same names; an unknown key is an error), answers --help, --version and --print-config, and
/// runs the command.  Every exception becomes one sentence on stderr and an exit code
/// (infer/program/exit_code.h).
int run_program(const std::string& program, const std::string& summary, const std::vector<Command>& commands,
                int argc, char** argv);

/// A CLI11 check that a value is a whole number that fits into T.  CLI11 alone would silently take the
/// nearest number that fits.
template <class T>
CLI::Validator whole_number() {
  return CLI::Validator(
      [](const std::string& text) {
        T value;
        const char* end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && read == end) return std::string();
        return "expected a whole number up to " + std::to_string(std::numeric_limits<T>::max()) +
               ", found \"" + text + "\"";
      },
      "");
}

/// Declares an option that takes a list of whole numbers from `min` to `max`, such as "1,4,8".
CLI::Option* add_numbers_option(CLI::App& app, const std::string& name, std::vector<int64_t>& numbers,
                                const std::string& help, int64_t min, int64_t max);

/// A CLI11 check of a size in bytes: "536870912", "512MB" or "4GB", where 1 MB is 1024 * 1024 bytes.  It
/// rewrites the text as the plain number of bytes.
CLI::Validator byte_count();

/// The values of all options of a parsed command, defaults included, by long name: a text, a list of texts
/// for an option with several values, a bool for a flag.
nlohmann::json resolved_settings(const CLI::App& app);

}  // namespace clover::infer
