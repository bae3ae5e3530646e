#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/syntax/syntax.h"

namespace clover::data {

/// A Jinja template, rendered as Hugging Face's apply_chat_template does: the language of jinja2 3.1 in its
/// immutable sandbox, with break and continue, {% generation %} and Hugging Face's tojson.  Not supported:
/// other files (include, import, extends, blocks), output that differs between runs (random, lipsum,
/// addresses of generators), pprint, urlize, integers of more than 38 digits.
/// tests/data/chat/jinja/jinja_test.cc compares it with jinja2. The engine: syntax/ parses a template into a
/// Program, Renderer runs it, values/ holds Python's values and operators, functions/ the filters, tests,
/// methods and global functions.
class JinjaTemplate {
 public:
  using json = jinja::json;

  /// Parses a template.  InputError naming the line of a syntax error or of an unsupported feature.
  explicit JinjaTemplate(std::string_view text) : program_(jinja::parse(text)) {}

  struct Rendered {
    std::string text;
    std::vector<std::pair<size_t, size_t>> generations;  // bytes [begin, end) of the {% generation %} blocks
  };
  /// InputError when the template raises an error, does what Python refuses, or exceeds the limits of
  /// values/limits.h; jinja::Unsupported when it uses something unsupported that only shows at run time.
  Rendered render(const json& variables) const;

 private:
  jinja::Program program_;
};

}  // namespace clover::data
