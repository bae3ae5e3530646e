#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "data/files/error.h"

namespace clover::model {

/// Typed access to the keys of a JSON object, such as a config.json.  A key whose value is null counts as
/// absent.  Every InputError names the key and `where`: the file, and the object within it if nested.
class ConfigKeys {
 public:
  ConfigKeys(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  /// Whether the key is present with the value null.
  bool is_null(const std::string& key) const { return object_.contains(key) && object_.at(key).is_null(); }
  const std::string& where() const { return where_; }

  /// An integer from 1 to max_integer.
  int64_t positive_integer(const std::string& key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number_integer() || value.get<int64_t>() <= 0 || value.get<int64_t>() > max_integer)
      refuse(key, "a positive integer");
    return value.get<int64_t>();
  }
  int64_t positive_integer_or(const std::string& key, int64_t fallback) const {
    return has(key) ? positive_integer(key) : fallback;
  }
  /// A finite number above 0.
  double positive_number(const std::string& key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0)
      refuse(key, "a positive number");
    return value.get<double>();
  }
  double positive_number_or(const std::string& key, double fallback) const {
    return has(key) ? positive_number(key) : fallback;
  }
  /// A positive number; `fallback` when it is absent or 0.
  double number_unless_zero(const std::string& key, double fallback) const {
    const bool zero = has(key) && at(key).is_number() && at(key).get<double>() == 0;
    return zero ? fallback : positive_number_or(key, fallback);
  }
  bool flag_or(const std::string& key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_boolean()) refuse(key, "true or false");
    return at(key).get<bool>();
  }
  std::string text_or(const std::string& key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_string()) refuse(key, "a string");
    return at(key).get<std::string>();
  }
  /// The value of a key; InputError when it is absent.
  const nlohmann::json& at(const std::string& key) const {
    if (!has(key)) throw data::InputError(where_ + ": \"" + key + "\" is missing.");
    return object_.at(key);
  }
  /// Throws the InputError for a key that is present but has a wrong value.  `expected`: what it should be.
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const {
    throw data::InputError(where_ + ": \"" + key + "\" is " + object_.at(key).dump().substr(0, 80) +
                           ", expected " + expected + ".");
  }

  /// Far above any dimension of a model, and so small that products of dimensions do not overflow.
  static constexpr int64_t max_integer = 100'000'000;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace clover::model
