#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace clover::data {

/// The value as JSON on one line.  Bytes that are no UTF-8 become U+FFFD, where nlohmann's dump would throw.
std::string to_json_line(const nlohmann::json& value);
/// At most `most` bytes of that for a message, then "...".  A number that JSON cannot write is named: inf,
/// nan.
std::string excerpt(const nlohmann::json& value, size_t most);

// Reads fields of an untrusted JSON record.  `path` names the field in messages, "messages[0].role".  A field
// of another type is an InputError "<path>: expected .., found ..".

/// The type of a value for messages: "a string", "a list", ...
std::string json_type_name(const nlohmann::json& value);
/// Throws that InputError.
[[noreturn]] void fail_expected(std::string_view path, std::string_view expected, std::string_view found);
/// The same, with 40 bytes of the value that was found.
[[noreturn]] void fail_value(std::string_view path, std::string_view expected, const nlohmann::json& found);
/// "path[index]".
std::string element_path(const std::string& path, size_t index);

/// The member `key` of `object`, which stands at `path` ("" for the record itself).
const nlohmann::json& member(const nlohmann::json& object, const std::string& path, const char* key);
const std::string& as_string(const nlohmann::json& value, std::string_view path);
/// The record's "category" as text, whatever its type; "" without one.
std::string category_of(const nlohmann::json& record);
const nlohmann::json& as_list(const nlohmann::json& value, std::string_view path);

}  // namespace clover::data
