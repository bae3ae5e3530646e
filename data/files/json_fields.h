#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace clover::data {

// Reads fields of an untrusted JSON record.  `path` names the field in messages, "messages[0].role".  A field
// of another type is an InputError "<path>: expected .., found ..".

/// The type of a value for messages: "a string", "a list", ...
std::string json_type_name(const nlohmann::json& value);
/// Throws that InputError.
[[noreturn]] void fail_expected(std::string_view path, const char* expected, const std::string& found);
/// "path[index]".
std::string element_path(const std::string& path, size_t index);

/// The member `key` of `object`, which stands at `path` ("" for the record itself).
const nlohmann::json& member(const nlohmann::json& object, const std::string& path, const char* key);
const std::string& as_string(const nlohmann::json& value, std::string_view path);
/// The record's "category" as text, whatever its type; "" without one.
std::string category_of(const nlohmann::json& record);
const nlohmann::json& as_list(const nlohmann::json& value, std::string_view path);

}  // namespace clover::data
