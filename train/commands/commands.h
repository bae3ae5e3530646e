#pragma once

#include <CLI/App.hpp>
#include <functional>

namespace clover::train {

/// Runs a parsed command; returns its exit code.
using Action = std::function<int()>;

/// Each function declares the options of one command on `app` and returns the action that runs it after
/// parsing.
Action declare_prepare(CLI::App& app);
Action declare_fit(CLI::App& app);
Action declare_eval(CLI::App& app);
Action declare_export(CLI::App& app);
Action declare_init(CLI::App& app);

}  // namespace clover::train
