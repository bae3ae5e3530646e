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

/// One command of a program: `program NAME --options`.
struct Command {
  std::string name;
  std::string summary;
  std::function<std::function<int()>(CLI::App&)>
      declare;  // declares options; returns what runs after parsing
};

/// A whole program: finds the command, reads options and `--config FILE` (TOML of the same names; unknown
/// keys are errors), answers --help, --version and --print-config, runs, and turns every error into one
/// sentence on stderr and an exit code (infer/program/exit_code.h).
int run_program(const std::string& program, const std::string& summary, const std::vector<Command>& commands,
                int argc, char** argv);

/// A check of an option: numbers that fit T.  CLI11 takes others for the nearest that does.
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

/// A size in bytes, "536870912", "512MB" or "4GB" (of 1024), as the number of bytes.
CLI::Validator byte_count();

/// Every option of a parsed command by its long name, defaults included: text, a list of texts, or true and
/// false.
nlohmann::json resolved_settings(const CLI::App& app);

}  // namespace clover::infer
