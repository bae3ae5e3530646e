#pragma once

#include <span>

#include "model/drafters/drafter.h"

namespace clover::model {

/// What every kind is made from.
struct DrafterInput {
  const nlohmann::json& settings;
  const TargetView& target;
  const at::Tensor& token_map;
  bool trainable;
  uint64_t seed;
};

struct DrafterFactory {
  const char* kind;
  std::shared_ptr<Drafter> (*make)(const DrafterInput&);
  std::span<const char* const> settings;  // names of those it reads
};

/// The table of kinds: a new drafter is a file beside this one and a line in factory.cc.
std::span<const DrafterFactory> drafter_factories();

std::shared_ptr<Drafter> make_clover(const DrafterInput& input);
std::shared_ptr<Drafter> make_clover2(const DrafterInput& input);
std::shared_ptr<Drafter> make_medusa(const DrafterInput& input);

/// Reads the settings of one kind strictly: typed keys, each asked for once, an InputError for any other.
class SettingsReader {
 public:
  SettingsReader(const char* kind, const nlohmann::json& settings);
  int64_t integer(const std::string& key, int64_t fallback, int64_t low, int64_t high);
  /// Ascending, each from low to high; none where the key is missing.
  std::vector<int64_t> ascending(const std::string& key, int64_t low, int64_t high);
  std::string choice(const std::string& key, const std::string& fallback,
                     std::initializer_list<const char*> allowed);
  void finish() const;

 private:
  const nlohmann::json* find(const std::string& key);
  std::string kind_;
  const nlohmann::json& settings_;
  std::vector<std::string> asked_;
};

}  // namespace clover::model
