#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace clover::train {

/// Reads config.json of published heads key by key.  Call `finish` at the end: it refuses keys that were not
/// read, unless they cannot change what the heads compute.
class PublishedConfig {
 public:
  /// InputError when `config`, the content of `file`, is no object.
  PublishedConfig(const nlohmann::json& config, std::filesystem::path file);

  /// An integer from 1 to a million; InputError for another value.  A missing key has the value `fallback`,
  /// and is an InputError if that is 0.
  int64_t count(const std::string& key, int64_t fallback = 0);
  /// true or false; `fallback` if the key is missing.
  bool flag(const std::string& key, bool fallback);
  /// InputError if the key is present and its value is none of `allowed`.  `why`: what our drafter does, for
  /// the message, such as "positions are not scaled".
  void expect(const std::string& key, std::initializer_list<nlohmann::json> allowed, const std::string& why);
  /// The value of a key, null if it is missing.
  nlohmann::json value(const std::string& key);
  /// Accepts keys that do not change what the heads compute.
  void ignore(std::initializer_list<const char*> keys);
  /// InputError for a key that was neither read nor ignored, nor is harmless in all formats.
  void finish() const;

  /// InputError "FILE: these heads WHAT."; what: a verb phrase, such as "scale positions".
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const nlohmann::json& config_;
  std::filesystem::path file_;
  std::set<std::string> read_keys_;
};

}  // namespace clover::train
