#pragma once

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "model/drafters/setting.h"

namespace clover::train {

/// Declares --NAME of a drafter's setting on `app`; what is given becomes `value`, as the command line has
/// it (model/drafters/setting.h).
CLI::Option* declare_drafter_option(CLI::App& app, const model::DrafterOption& option, nlohmann::json& value);

}  // namespace clover::train
