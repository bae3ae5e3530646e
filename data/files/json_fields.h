#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace clover::data {

// Fields of one untrusted JSON record.  `path` says where they stand, "messages[0].role"; what is not as
// expected is an InputError "<path>: expected .., found ..".

/// "a string", "a list", ...: for messages.
std::string kind_of(const nlohmann::json& value);
[[noreturn]] void fail_expected(std::string_view path, const char* expected, const std::string& found);
std::string element(const std::string& path, size_t index);

/// The member `key` of an object at `path` ("" for the record itself).
const nlohmann::json& member(const nlohmann::json& object, const std::string& path, const char* key);
const std::string& as_string(const nlohmann::json& value, std::string_view path);
/// "category" of a record, whatever it is, as text; "" where there is none.
std::string category_of(const nlohmann::json& record);
const nlohmann::json& as_list(const nlohmann::json& value, std::string_view path);

}  // namespace clover::data
