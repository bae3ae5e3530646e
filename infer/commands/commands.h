#pragma once

#include <CLI/App.hpp>
#include <functional>

namespace clover::infer {

/// Runs a parsed command; returns its exit code.
using Action = std::function<int()>;

/// Each declares the options of one command on `app`; the action reads them after parsing.
Action declare_generate(CLI::App& app);
Action declare_batch(CLI::App& app);
Action declare_bench(CLI::App& app);
Action declare_tokenize(CLI::App& app);
Action declare_verify_equal(CLI::App& app);
Action declare_inspect(CLI::App& app);

}  // namespace clover::infer
