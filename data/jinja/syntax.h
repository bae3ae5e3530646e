#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What a Jinja template says, before anything is rendered: the part of the language that chat templates use.
namespace clover::data::jinja {

/// Keeps the order of keys, as Python does.  A discarded value is Jinja's undefined.
using json = nlohmann::ordered_json;

struct Expression {
  enum class Kind {
    literal,    // value
    name,       // text
    list,       // parts; a tuple is one too
    dict,       // parts: key, value, key, value ..
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1] : parts[2] : parts[3]], absent ones the literal null
    call,       // parts[0](parts[1] .., named)
    filter,     // parts[0] | text(parts[1] .., named)
    test,       // parts[0] is text(parts[1] ..)
    operation,  // text of parts: not, and, or, -, +, *, /, //, %, **, ~, if (value, condition, otherwise)
    compare     // parts[0] operators[0] parts[1] operators[1] parts[2] ..
  };
  Kind kind = Kind::literal;
  int line = 0;
  int depth = 1;  // of expressions within each other
  std::string text = {};
  json value = {};
  std::vector<Expression> parts = {};
  std::vector<std::pair<std::string, Expression>> named = {};
  std::vector<std::string> operators = {};
};

struct Statement {
  enum class Kind {
    text,       // text
    output,     // expressions[0]
    condition,  // expressions[i] ? bodies[i]; one body more is the else
    loop,       // for names in expressions[0] [if expressions[1]]: bodies[0], else bodies[1]
    set,        // names = expressions[0], or text.names[0] = expressions[0]
    set_block,  // names[0] = what bodies[0] writes
    macro,      // text(names = expressions): bodies[0]; a parameter without a default has an undefined one
    stop,       // break
    next,       // continue
    generation  // bodies[0] is what an assistant wrote
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string text = {};
  std::vector<std::string> names = {};
  std::vector<Expression> expressions = {};
  std::vector<std::vector<Statement>> bodies = {};
};

/// With Hugging Face's settings (trim_blocks, lstrip_blocks).  InputError naming the line where the text is
/// no template or uses what is not supported.
std::vector<Statement> parse(std::string_view text);

}  // namespace clover::data::jinja
