// Precompiled header of data/, most of whose files know nothing of tensors.
#pragma once
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>
