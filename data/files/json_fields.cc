#include "data/files/json_fields.h"

#include <cmath>

#include "data/files/error.h"

namespace clover::data {

using Json = nlohmann::json;

std::string json_type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return "a number";
  }
}

std::string to_json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string excerpt(const Json& value, size_t max_bytes) {
  const bool is_finite = !value.is_number_float() || std::isfinite(value.get<double>());
  std::string text = is_finite ? to_json_line(value) : std::to_string(value.get<double>());
  if (text.size() > max_bytes) text.replace(max_bytes, std::string::npos, "...");
  return text;
}

void fail_expected(std::string_view path, std::string_view expected, std::string_view found) {
  throw InputError(std::string(path) + ": expected " + std::string(expected) + ", found " +
                   std::string(found));
}

void fail_value(std::string_view path, std::string_view expected, const Json& found) {
  fail_expected(path, expected, excerpt(found, 40));
}

std::string element_path(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

const Json& member(const Json& object, const std::string& path, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) {
    fail_expected(path.empty() ? "the record" : path, std::string("the field \"") + key + "\"", "none");
  }
  return *found;
}

const std::string& as_string(const Json& value, std::string_view path) {
  if (!value.is_string()) fail_expected(path, "a string", json_type_name(value));
  return value.get_ref<const std::string&>();
}

std::string category_of(const Json& record) {
  const auto found = record.find("category");
  if (found == record.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : to_json_line(*found);
}

const Json& as_list(const Json& value, std::string_view path) {
  if (!value.is_array()) fail_expected(path, "a list", json_type_name(value));
  return value;
}

}  // namespace clover::data
