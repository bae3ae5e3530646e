#pragma once

#include <CLI/App.hpp>

#include "infer/program/command_line.h"

namespace clover::train {

using infer::Action;

/// Each function declares the options of one command of clover-train on `app`, and returns the action that
/// runs the command after parsing.
Action declare_synthesize(CLI::App& app);
Action declare_prepare(CLI::App& app);
Action declare_fit(CLI::App& app);
Action declare_eval(CLI::App& app);
Action declare_export(CLI::App& app);
Action declare_init(CLI::App& app);

}  // namespace clover::train
