#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace clover::data {

/// The value as JSON on one line.  Bytes that are no UTF-8 become U+FFFD, where nlohmann's dump would throw.
std::string to_json_line(const nlohmann::json& value);
/// The first `max_bytes` bytes of that line, for an error message; "..." marks a cut.  Infinities and NaN,
/// which JSON cannot write, are inf and nan.
std::string excerpt(const nlohmann::json& value, size_t max_bytes);

// The functions below read fields of an untrusted JSON record.  `path` names the field in error messages:
// "messages[0].role".  For a missing field or another type they throw an InputError,
// "<path>: expected .., found ..".

/// The type of a value for error messages: "a string", "a list", ...
std::string json_type_name(const nlohmann::json& value);
/// Throws InputError "<path>: expected <expected>, found <found>".
[[noreturn]] void fail_expected(std::string_view path, std::string_view expected, std::string_view found);
/// The same, with an excerpt of 40 bytes of `found`.
[[noreturn]] void fail_value(std::string_view path, std::string_view expected, const nlohmann::json& found);
/// "path[index]".
std::string element_path(const std::string& path, size_t index);

/// The member `key` of `object`.  `path` is that of `object`, "" if it is the record itself.
const nlohmann::json& member(const nlohmann::json& object, const std::string& path, const char* key);
const std::string& as_string(const nlohmann::json& value, std::string_view path);
const nlohmann::json& as_list(const nlohmann::json& value, std::string_view path);
/// The record's "category" as text, also if it is no string; "" without one.
std::string category_of(const nlohmann::json& record);

}  // namespace clover::data
