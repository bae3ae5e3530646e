#pragma once

#include <CLI/App.hpp>

#include "infer/program/command_line.h"

namespace clover::infer {

/// Each declares the options of one command on `app` and returns its action, which run_program calls when the
/// options have been parsed.
Action declare_generate(CLI::App& app);
Action declare_batch(CLI::App& app);
Action declare_bench(CLI::App& app);
Action declare_tokenize(CLI::App& app);
Action declare_verify_equal(CLI::App& app);
Action declare_inspect(CLI::App& app);

}  // namespace clover::infer
