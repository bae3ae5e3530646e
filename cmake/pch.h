// Precompiled header shared by all rooms (see CMakeLists.txt).  Only third-party headers belong here.
#pragma once
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>
