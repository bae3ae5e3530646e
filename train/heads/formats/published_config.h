#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace clover::train {

/// Reads the config.json of published heads key by key.  Every key must be asked for or be one that cannot
/// change what the heads compute; `finish` refuses any other by name.
class PublishedConfig {
 public:
  /// InputError when `config`, the content of `file`, is no object.
  PublishedConfig(const nlohmann::json& config, std::filesystem::path file);

  /// A whole number from 1 to a million; InputError otherwise and, without `fallback`, when it is missing.
  int64_t count(const std::string& key, int64_t fallback = 0);
  bool flag(const std::string& key, bool fallback);
  /// InputError when the key is there and its value is none of `allowed`; `why`, such as "positions are not
  /// scaled", says what the heads are taken to do.
  void expect(const std::string& key, std::initializer_list<nlohmann::json> allowed, const std::string& why);
  /// The value of a key, null where it is missing.
  nlohmann::json value(const std::string& key);
  /// Keys that may be there and say nothing of the heads' results.
  void ignore(std::initializer_list<const char*> keys);
  /// InputError for a key that nobody has asked for.
  void finish() const;

  /// InputError: the heads of this file `what`.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const nlohmann::json& config_;
  std::filesystem::path file_;
  std::set<std::string> read_;
};

}  // namespace clover::train
