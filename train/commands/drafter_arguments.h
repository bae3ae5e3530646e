#pragma once

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "model/drafters/setting.h"

namespace clover::train {

/// Declares the option --NAME of a drafter's setting on `app`.  Parsing stores its argument in `value`, in
/// the form that options have (model/drafters/setting.h).
CLI::Option* declare_drafter_option(CLI::App& app, const model::DrafterOption& option, nlohmann::json& value);

}  // namespace clover::train
