#include "data/chat/jinja/values/formatting.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"

// Python's str.format().
namespace clover::data::jinja {
namespace {

class FieldWriter {
 public:
  FieldWriter(const Value& format, const Arguments& arguments)
      : markup_(format.is_markup()), arguments_(arguments) {}

  std::string write(const std::string& format, int depth) {
    if (depth > 2) throw_error("fields of a format lie too deep within each other");
    std::string result;
    for (size_t at = 0; at < format.size(); ++at) {
      const char c = format[at];
      if (c != '{' && c != '}') {
        result += c;
      } else if (at + 1 < format.size() && format[at + 1] == c) {
        result += c;
        ++at;
      } else if (c == '}') {
        throw_error("a format with a \"}\" that nothing opened");
      } else {
        const size_t end = end_of_field(format, at + 1);
        result += field(format.substr(at + 1, end - at - 1), depth);
        at = end;
      }
      check_size(result);
    }
    return result;
  }

 private:
  static size_t end_of_field(const std::string& format, size_t at) {
    int open = 1;
    bool in_brackets = false;
    for (; at < format.size(); ++at) {
      if (format[at] == '[') in_brackets = true;
      if (format[at] == ']') in_brackets = false;
      if (in_brackets) continue;
      open += (format[at] == '{') - (format[at] == '}');
      if (open == 0) return at;
    }
    throw_error("a format with a \"{\" that nothing closes");
  }

  std::string field(const std::string& text, int depth) {
    size_t end = 0;
    for (bool in_brackets = false; end < text.size(); ++end) {
      if (text[end] == '[') in_brackets = true;
      if (text[end] == ']') in_brackets = false;
      if (!in_brackets && (text[end] == '!' || text[end] == ':')) break;
    }
    Value value = look_up(text.substr(0, end));
    if (end < text.size() && text[end] == '!') {
      if (end + 1 >= text.size() || (end + 2 < text.size() && text[end + 2] != ':'))
        throw_error("a broken conversion of a format");
      const char conversion = text[end + 1];
      if (conversion != 'r' && conversion != 's')
        throw_error("a conversion of a format that is neither r nor s");
      value = Value::of(conversion == 'r' ? repr(value) : to_str(value));
      end += 2;
    }
    const std::string specification = end < text.size() ? write(text.substr(end + 1), depth + 1) : "";
    if (markup_ && value.is_markup() && specification.empty()) return value.text();
    if (value.is_undefined() && !specification.empty()) throw_error("a format for something undefined");
    std::string written = format_value(value, specification);
    return markup_ ? escaped(Value::of(std::move(written))) : written;
  }

  Value look_up(const std::string& path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    for (size_t at = end; at < path.size();) {
      if (path[at] == '.') {
        const size_t next = std::min(path.find_first_of(".[", at + 1), path.size());
        value = attribute_of(value, path.substr(at + 1, next - at - 1));
        at = next;
        continue;
      }
      const size_t bracket_end = path.find(']', at);
      if (path[at] != '[' || bracket_end == std::string::npos) throw_error("a broken field of a format");
      const std::string key = path.substr(at + 1, bracket_end - at - 1);
      value = item_of(value, is_number(key) ? number(key) : Value::of(key));
      at = bracket_end + 1;
    }
    return value;
  }

  static bool is_number(const std::string& text) {
    return !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
  }
  static Value number(const std::string& text) { return Value::of(Integer{std::stoll(text)}); }

  Value argument(const std::string& name) {
    if (name.empty() || is_number(name)) {
      if (name.empty() == explicit_numbers_ && number_style_known_)
        throw_error("a format whose fields are numbered and not numbered");
      number_style_known_ = true;
      explicit_numbers_ = !name.empty();
      const auto at = name.empty() ? next_argument_++ : static_cast<size_t>(std::stoll(name));
      if (at >= arguments_.values.size()) throw_error("too few values for the format");
      return arguments_.values[at];
    }
    for (const auto& [keyword, value] : arguments_.keywords)
      if (keyword == name) return value;
    throw_error("a format that names \"" + name.substr(0, 40) + "\", which is not there");
  }

  const bool markup_;
  const Arguments& arguments_;
  size_t next_argument_ = 0;         // the value that the next field {} stands for
  bool number_style_known_ = false;  // a field {} or {0} was read; a format may have only one of these styles
  bool explicit_numbers_ = false;    // the style is {0}, not {}
};

}  // namespace

Value str_format(const Value& format, const Arguments& arguments) {
  std::string text = FieldWriter(format, arguments).write(format.text(), 0);
  return format.is_markup() ? Value::markup(std::move(text)) : Value::of(std::move(text));
}

}  // namespace clover::data::jinja
