#include "data/files/json_fields.h"

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

void fail_expected(std::string_view path, const char* expected, const std::string& found) {
  throw InputError(std::string(path) + ": expected " + expected + ", found " + found);
}

std::string element_path(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

const Json& member(const Json& object, const std::string& path, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) {
    fail_expected(path.empty() ? "the record" : path, (std::string("the field \"") + key + "\"").c_str(),
                  "none");
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
  return found->is_string() ? found->get<std::string>()
                            : found->dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json& as_list(const Json& value, std::string_view path) {
  if (!value.is_array()) fail_expected(path, "a list", json_type_name(value));
  return value;
}

}  // namespace clover::data
