#pragma once

#include <span>

#include "model/drafters/drafter.h"

namespace clover::model {

/// What a drafter of any kind is made from.
struct DrafterSpec {
  const nlohmann::json& settings;
  const TargetView& target;
  const at::Tensor& token_map;
  bool trainable;
  uint64_t seed;
};

struct DrafterFactory {
  const char* kind;
  std::shared_ptr<Drafter> (*make)(const DrafterSpec&);
  std::span<const char* const> settings;  // their names
};

/// The table of kinds: a new drafter is a file beside this one, its function and its row in factory.cc, and a
/// line of model/CMakeLists.txt.
std::span<const DrafterFactory> drafter_factories();

/// Reads the settings of one kind strictly: InputError for a wrong type or value and, in `finish`, for a key
/// that was not read.
class SettingsReader {
 public:
  SettingsReader(const char* kind, const nlohmann::json& settings);
  int64_t integer(const std::string& key, int64_t fallback, int64_t low, int64_t high);
  /// Ascending, each from low to high; none where the key is missing.
  std::vector<int64_t> ascending(const std::string& key, int64_t low, int64_t high);
  std::string choice(const std::string& key, const std::string& fallback,
                     std::initializer_list<const char*> allowed);
  bool flag(const std::string& key, bool fallback);
  void finish() const;

 private:
  const nlohmann::json* find(const std::string& key);
  std::string kind_;
  const nlohmann::json& settings_;
  std::vector<std::string> read_;  // keys
};

}  // namespace clover::model
