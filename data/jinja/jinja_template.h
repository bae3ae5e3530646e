#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/jinja/syntax.h"

namespace clover::data {

/// A Jinja template as far as chat templates use the language: expressions, if, for, set, macros, namespaces,
/// break and continue, Hugging Face's {% generation %}, and the common filters, tests and methods of texts,
/// lists and dicts.  Compared with the PyPI package jinja2 under Hugging Face's settings in
/// tests/data/jinja_test.cc.
class JinjaTemplate {
 public:
  using json = jinja::json;

  /// InputError naming the line where the text is no template or uses what is not supported.
  explicit JinjaTemplate(std::string_view text) : statements_(jinja::parse(text)) {}

  struct Rendered {
    std::string text;
    std::vector<std::pair<size_t, size_t>>
        generations;  // bytes [begin, end) between {% generation %} and its end
  };
  /// InputError where the template raises one, where Python would refuse what it does, and where it does not
  /// come to an end.
  Rendered render(const json& variables) const;

 private:
  std::vector<jinja::Statement> statements_;
};

}  // namespace clover::data
