#include "infer/program/command_line.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>

#include "data/files/error.h"
#include "data/text/utf8.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/program/toml_config.h"

namespace clover::infer {
namespace {

std::string program_help(const std::string& program, const std::string& summary,
                         const std::vector<Command>& commands) {
  std::string text = summary + "\n\nUsage: " + program + " COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : commands) {
    text += "  " + command.name + std::string(16 - std::min<size_t>(15, command.name.size()), ' ') +
            command.summary + "\n";
  }
  return text + "\n" + program + " COMMAND --help explains a command and shows examples.\n";
}

/// Cuts out the middle of a message of more than 4000 bytes: a message that quotes a file can be as long as
/// the file.
std::string without_middle(const std::string& message) {
  constexpr size_t max_size = 4000, tail_size = 500;  // bytes
  if (message.size() <= max_size) return message;
  size_t begin = max_size - tail_size, end = message.size() - tail_size;
  while (begin > 0 && data::is_continuation_byte(message[begin])) --begin;
  while (end < message.size() && data::is_continuation_byte(message[end])) ++end;
  return message.substr(0, begin) + " [...] " + message.substr(end);
}

/// Prints one error message and returns `code`.
int print_error(const std::string& program, const std::string& message, int code) {
  std::cerr << program << ": " << without_middle(message) << std::endl;
  return code;
}

/// Returns the keys of a config file.  InputError for a key that is not an option of the command, because
/// CLI11's own message would not explain the error.
std::vector<std::string> check_config_keys(const CLI::App& app, const std::string& file) {
  std::vector<CLI::ConfigItem> items;
  try {
    items = app.get_config_formatter()->from_file(file);
  } catch (const data::InputError& error) {
    throw data::InputError(file + ", " + error.what());
  }
  std::vector<std::string> keys;
  for (const CLI::ConfigItem& item : items) {
    keys.push_back(item.name);
    const CLI::Option* option = item.parents.empty() ? app.get_option_no_throw("--" + item.name) : nullptr;
    if (!option || !option->get_configurable()) {
      throw data::InputError(file + ": unknown key \"" + item.fullname() + "\"; `" + app.get_name() +
                             " --help` lists the options, a key is the name of one without the dashes");
    }
  }
  return keys;
}

/// Whether `text`, an argument or an error message of CLI11, contains the option --`name`.
bool names_option(const std::string& text, const std::string& name) {
  const std::string option = "--" + name;
  const size_t at = text.find(option);
  return at != std::string::npos && text.find_first_of("abcdefghijklmnopqrstuvwxyz0123456789-",
                                                       at + option.size()) != at + option.size();
}

/// The file that --config names, found before CLI11 parses the arguments; empty when there is none.
std::string config_file_of(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].rfind("--config=", 0) == 0) return arguments[i].substr(9);
  }
  return "";
}

/// Parses the arguments and the --config file.  Errors in values of the file name the file.
void parse(CLI::App& app, std::vector<std::string> arguments) {
  const std::string config = config_file_of(arguments);
  std::vector<std::string> keys;
  if (!config.empty()) {
    if (!CLI::ExistingFile(config).empty()) {
      throw data::InputError("--config " + config + ": expected a file that can be read, found none");
    }
    // The file is read twice; a pipe would be empty the second time, or block.
    if (std::filesystem::is_fifo(config) || std::filesystem::is_socket(config)) {
      throw data::InputError("--config " + config +
                             ": expected a regular file (it is read twice), found a pipe or a "
                             "socket; save the settings to a file first");
    }
    keys = check_config_keys(app, config);
  }
  // An option on the command line overrides the file's, so an error in its value is not the file's.
  for (const std::string& argument : arguments)
    std::erase_if(keys, [&](const std::string& key) { return names_option(argument, key); });
  keep_brackets(app, arguments);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects them in reverse
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    const std::string message = error.what();
    if (error.get_exit_code() != 0 &&
        std::ranges::any_of(keys, [&](const std::string& key) { return names_option(message, key); }))
      throw data::InputError(config + ": " + message + " (--help explains the options)");
    throw;
  }
}

/// InputError when a result file would overwrite the --config file.
void check_config_not_overwritten(const CLI::App& app) {
  if (app.get_config_ptr()->count() == 0) return;
  const std::string config = app.get_config_ptr()->as<std::string>();
  std::error_code ignored;
  for (const char* name : {"--output", "--json", "--stats", "--trace"}) {
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr || option->count() == 0) continue;
    if (std::filesystem::equivalent(option->as<std::string>(), config, ignored))
      throw data::InputError(std::string(name) + " " + option->as<std::string>() +
                             ": expected another file than that of --config");
  }
}

int run_command(const std::string& program, const Command& command,
                const std::vector<std::string>& arguments) {
  CLI::App app(command.summary, program + " " + command.name);
  app.option_defaults()->always_capture_default();
  app.get_formatter()->column_width(34);
  const auto action = command.declare(app);
  app.config_formatter(std::make_shared<TomlConfig>(app));
  app.set_config("--config", "", "TOML file of these options; the command line wins")
      ->type_name("FILE")
      ->configurable(false);
  bool print_config = false;
  app.add_flag("--print-config", print_config, "Print all settings as a --config file, and stop")
      ->configurable(false);
  try {
    parse(app, arguments);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return exit_done;
  } catch (const CLI::ParseError& error) {
    return print_error(app.get_name(), std::string(error.what()) + " (--help explains the options)",
                       exit_bad_input);
  }
  check_config_not_overwritten(app);
  if (print_config) {
    std::cout << app.config_to_str(true, false);
    return exit_done;
  }
  return action();
}

/// Flushes stdout.  Returns `code`, or prints an error and returns exit_failed when writing to stdout failed.
/// `name`: the program and command, for the message.
int flush_stdout(const std::string& name, int code) {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return print_error(name,
                       "what was said on stdout could not be written: is the disk full, or its reader gone?",
                       exit_failed);
  return code;
}

/// Runs a command and turns every exception into a message and an exit code.
int run_and_report_errors(const std::string& program, const Command& command,
                          const std::vector<std::string>& arguments) {
  const std::string name = program + " " + command.name;
  try {
    return flush_stdout(name, run_command(program, command, arguments));
  } catch (const data::InputError& error) {
    return print_error(name, error.what(), exit_bad_input);
  } catch (const Interrupted&) {
    return print_error(name, "interrupted", exit_interrupted);
  } catch (const std::bad_alloc&) {
    return print_error(name,
                       "out of memory; complete lines and files already written are safe, try a smaller "
                       "--kv-memory or --max-batch",
                       exit_failed);
  } catch (const c10::OutOfMemoryError&) {
    return print_error(
        name,
        "the GPU's memory is full; complete lines and files already written are safe, try a smaller "
        "--kv-memory or --max-batch (of fit: --micro-batch)",
        exit_failed);
  } catch (const c10::Error& error) {
    return print_error(name,
                       std::string("failed: ") + error.what_without_backtrace() +
                           "; complete lines and files already written are safe",
                       exit_failed);
  } catch (const std::exception& error) {
    return print_error(
        name, std::string("failed: ") + error.what() + "; complete lines and files already written are safe",
        exit_failed);
  }
}

/// Opens /dev/null in place of standard streams that are closed.  Otherwise the next file that is opened
/// would get the stream's number, and output meant for the stream would be written into that file.
void replace_closed_streams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0) continue;
    // A closed stdout is opened for reading only, so that printing to it stays an error; output to stderr is
    // dropped.
    ::open("/dev/null", number == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int run_program(const std::string& program, const std::string& summary, const std::vector<Command>& commands,
                int argc, char** argv) {
  replace_closed_streams();
  // A reader that closes the pipe (head, less) becomes a write error instead of killing the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // the same for a file that outgrows the shell's limit (ulimit -f)
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    std::cerr << program_help(program, summary, commands);
    return exit_bad_input;
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    std::cout << program_help(program, summary, commands);
    return flush_stdout(program, exit_done);
  }
  if (arguments[0] == "--version") {
    std::cout << program << " " << CLOVER_VERSION << "\n";
    return flush_stdout(program, exit_done);
  }
  for (const Command& command : commands) {
    if (command.name != arguments[0]) continue;
    return run_and_report_errors(program, command, {arguments.begin() + 1, arguments.end()});
  }
  std::string names;
  for (const Command& command : commands) names += (names.empty() ? "" : ", ") + command.name;
  return print_error(program, "expected a command (" + names + "), found \"" + arguments[0] + "\"",
                     exit_bad_input);
}

CLI::Option* add_numbers_option(CLI::App& app, const std::string& name, std::vector<int64_t>& numbers,
                                const std::string& help, int64_t min, int64_t max) {
  return app.add_option(name, numbers, help)->delimiter(',')->type_name("N,...")->check(CLI::Range(min, max));
}

CLI::Validator byte_count() {
  return CLI::Validator(
      [](std::string& text) {
        std::string bytes = text;
        try {
          const bool negative = bytes.find('-') != bytes.npos;  // CLI11 would read -1 as the largest number
          if (!negative && CLI::AsSizeValue(false)(bytes).empty() && whole_number<int64_t>()(bytes).empty()) {
            text = bytes;
            return std::string();
          }
        } catch (const CLI::ValidationError&) {  // thrown by CLI11 for an unknown unit
        }
        return "expected a size in bytes, or such as 512MB or 4GB, found \"" + text + "\"";
      },
      "");
}

nlohmann::json resolved_settings(const CLI::App& app) {
  nlohmann::json settings = nlohmann::json::object();
  for (const CLI::Option* option : app.get_options({})) {
    if (!option->get_configurable() || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (name == "help") continue;
    const std::vector<std::string> values = values_of(*option);
    if (option->get_expected_max() == 0) {
      settings[name] = !values.empty() && values.front() != "false";
    } else if (option->get_expected_max() > 1) {
      settings[name] = values;
    } else {
      settings[name] = values.empty() ? "" : values.front();
    }
  }
  return settings;
}

}  // namespace clover::infer
