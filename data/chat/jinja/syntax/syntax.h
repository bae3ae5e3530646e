#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/values.h"

// What a Jinja template says, before anything is rendered.
namespace clover::data::jinja {

struct Expression {
  enum class Kind {
    literal,    // value
    name,       // symbol
    list,       // parts
    tuple,      // parts
    dict,       // parts: key, value, key, value ..
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1] : parts[2] : parts[3]], absent ones the literal none
    call,       // parts[0](parts[1] .., named)
    filter,     // parts[0] | text(parts[1] .., named)
    test,       // parts[0] is text(parts[1] .., named)
    operation,  // text of parts: not, and, or, minus, plus, -, +, *, /, //, %, **, if (value, condition,
                // otherwise)
    joined,     // parts[0] ~ parts[1] ~ ..
    compare     // parts[0] operators[0] parts[1] operators[1] parts[2] ..
  };
  Kind kind = Kind::literal;
  int line = 0;
  int depth = 1;    // of expressions within each other
  int symbol = -1;  // of a name: its number
  std::string text = {};
  Value value = {};
  std::vector<Expression> parts = {};
  std::vector<std::pair<std::string, Expression>> named = {};  // "*" and "**": what is spread
  std::vector<std::string> operators = {};
};

struct Statement;

/// Of a macro or of what {% call %} passes on.
struct Parameters {
  std::vector<std::string> names = {};
  std::vector<int> symbols = {};
  std::vector<Expression> defaults = {};  // of the last ones
  bool wants_caller = false, wants_rest = false, wants_named = false;
};

struct Statement {
  enum class Kind {
    text,        // text
    output,      // expressions
    condition,   // expressions[i] ? bodies[i]; one body more is the else
    loop,        // for targets[0] in expressions[0] [if expressions[1]]: bodies[0], else bodies[1]
    set,         // targets[0] = expressions[0]
    set_block,   // targets[0] = what bodies[0] writes, through the filters of expressions[0]
    macro,       // symbol, text: its name; bodies[0]
    call,        // expressions[0], a call, with bodies[0] as its caller
    filter,      // the filters of expressions[0] of what bodies[0] writes
    scope,       // targets = expressions, within bodies[0] only
    stop,        // break
    next,        // continue
    generation,  // bodies[0] is what an assistant wrote
  };
  Kind kind = Kind::text;
  int line = 0;
  int symbol = -1;
  bool recursive = false;
  std::string text = {};
  std::vector<Expression> targets = {};  // names, tuples of them, attributes of namespaces
  std::vector<Expression> expressions = {};
  Parameters parameters = {};
  std::vector<std::vector<Statement>> bodies = {};
};

struct Program {
  std::vector<Statement> statements;
  std::vector<std::string> names;  // by their symbols
};

// Symbols of names that mean something by themselves.
constexpr int loop_symbol = 0, caller_symbol = 1, rest_symbol = 2, named_symbol = 3, written_symbol = 4;

/// With Hugging Face's settings (trim_blocks, lstrip_blocks).  InputError naming the line where the text is
/// no template or uses what is not supported.
Program parse(std::string_view text);

}  // namespace clover::data::jinja
