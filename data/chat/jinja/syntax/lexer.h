#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace clover::data::jinja {

/// A token of a template.
struct Token {
  enum class Kind {
    text,          // outside tags
    begin_block,   // {%
    end_block,     // %}
    begin_output,  // {{
    end_output,    // }}
    name,
    string,
    integer,
    real,
    symbol,  // an operator, a bracket or punctuation
    end      // of the template
  };
  Kind kind;
  std::string text;  // of a number: without underscores; of a string: without quotes, escapes replaced
  int line;          // from 1
};

/// Cuts a template into tokens.  It drops comments, {% raw %} tags, and the whitespace around tags that minus
/// signs and Hugging Face's settings (trim_blocks, lstrip_blocks) remove.  InputError naming the line.
std::vector<Token> tokenize(std::string_view text);

}  // namespace clover::data::jinja
