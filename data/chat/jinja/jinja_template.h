#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/syntax/syntax.h"

namespace clover::data {

/// A Jinja template as Hugging Face's apply_chat_template renders it: the language of the PyPI package jinja2
/// 3.1 in its immutable sandbox, with break and continue, {% generation %} and Hugging Face's own tojson.
/// Not in it: other files (include, import, extends, blocks), what differs from run to run (random, lipsum,
/// the addresses of generators), pprint, urlize, whole numbers of more than 38 digits.  Compared with jinja2
/// in tests/data/chat/jinja/jinja_test.cc.
class JinjaTemplate {
 public:
  using json = jinja::json;

  /// InputError naming the line where the text is no template or uses what is not supported.
  explicit JinjaTemplate(std::string_view text) : program_(jinja::parse(text)) {}

  struct Rendered {
    std::string text;
    std::vector<std::pair<size_t, size_t>>
        generations;  // bytes [begin, end) between {% generation %} and its end
  };
  /// InputError where the template raises one, where Python would refuse what it does, and where it does not
  /// come to an end; Unsupported where it does what is not supported, which was not known before.
  Rendered render(const json& variables) const;

 private:
  jinja::Program program_;
};

}  // namespace clover::data
