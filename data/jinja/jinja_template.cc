#include "data/jinja/jinja_template.h"

#include <deque>
#include <map>
#include <optional>

#include "data/error.h"
#include "data/jinja/globals.h"

namespace clover::data {
namespace {

using namespace jinja;

constexpr int deepest_call = 50, deepest_value = 1000;
const std::string space_mark = "\x01namespace";  // the key of a dict that stands for a namespace: its number

enum class Flow { on, stop, next };  // the innermost loop: goes on, ends, goes to its next item

struct Loop {
  const std::vector<Value>* items;
  size_t at = 0;
};

struct Scope {
  std::map<std::string, Value> values;
  std::optional<Loop> loop;
};

class Renderer {
 public:
  explicit Renderer(const JinjaTemplate::json& variables) {
    begin_spending();
    scopes_.emplace_back();
    for (const auto& item : variables.items()) scopes_[0].values[item.key()] = made(item.value());
  }

  JinjaTemplate::Rendered render(const std::vector<Statement>& statements) {
    run(statements);
    return std::move(out_);
  }

 private:
  Flow run(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements)
      if (const Flow flow = run(statement); flow != Flow::on) return flow;
    return Flow::on;
  }

  Flow run(const Statement& statement) {
    spend(1);
    switch (statement.kind) {
      case Statement::Kind::text:
        write(statement.text);
        return Flow::on;
      case Statement::Kind::output:
        write(text_of(*value_of(statement.expressions[0])));
        return Flow::on;
      case Statement::Kind::condition:
        return choose(statement);
      case Statement::Kind::loop:
        return loop(statement);
      case Statement::Kind::set:
        set(statement);
        return Flow::on;
      case Statement::Kind::set_block:
        bind(statement, made(written_by(statement.bodies[0])));
        return Flow::on;
      case Statement::Kind::macro:
        macros_[statement.text] = &statement;
        return Flow::on;
      case Statement::Kind::stop:
        return Flow::stop;
      case Statement::Kind::next:
        return Flow::next;
      case Statement::Kind::generation: {
        const size_t begin = out_.text.size();
        scopes_.emplace_back();
        const Flow flow = run(statement.bodies[0]);
        scopes_.pop_back();
        if (captures_ == 0) out_.generations.emplace_back(begin, out_.text.size());
        return flow;
      }
    }
    return Flow::on;
  }

  void write(const std::string& text) {
    spend(static_cast<int64_t>(text.size() >> 10));
    if (out_.text.size() + text.size() > most_of_a_value) throw InputError("it writes more than 64 MiB");
    out_.text += text;
  }

  std::string written_by(const std::vector<Statement>& body) {
    std::string before = std::exchange(out_.text, "");
    ++captures_;
    scopes_.emplace_back();
    run(body);
    scopes_.pop_back();
    --captures_;
    return std::exchange(out_.text, std::move(before));
  }

  Flow choose(const Statement& statement) {
    for (size_t i = 0; i < statement.expressions.size(); ++i)
      if (is_true(*value_of(statement.expressions[i]))) return run(statement.bodies[i]);
    const bool otherwise = statement.bodies.size() > statement.expressions.size();
    return otherwise ? run(statement.bodies.back()) : Flow::on;
  }

  Flow loop(const Statement& statement) {
    std::vector<Value> items = items_of(value_of(statement.expressions[0]));
    if (statement.expressions.size() > 1) {
      std::vector<Value> kept;
      for (const Value& item : items) {
        scopes_.emplace_back();
        bind(statement, item);
        if (is_true(*value_of(statement.expressions[1]))) kept.push_back(item);
        scopes_.pop_back();
      }
      items = std::move(kept);
    }
    for (size_t at = 0; at < items.size(); ++at) {
      scopes_.push_back({{}, Loop{&items, at}});
      bind(statement, items[at]);
      const Flow flow = run(statement.bodies[0]);
      scopes_.pop_back();
      if (flow == Flow::stop) break;
    }
    return items.empty() && statement.bodies.size() > 1 ? run(statement.bodies[1]) : Flow::on;
  }

  /// The names of a loop or an assignment to a value, or to the parts of one.
  void bind(const Statement& statement, const Value& value) {
    auto& values = scopes_.back().values;
    if (statement.names.size() == 1) {
      values[statement.names[0]] = value;
      return;
    }
    const std::vector<Value> parts = items_of(value);
    if (parts.size() != statement.names.size())
      throw InputError("line " + std::to_string(statement.line) + ": " + std::to_string(parts.size()) +
                       " values for " + std::to_string(statement.names.size()) + " names");
    for (size_t i = 0; i < parts.size(); ++i) values[statement.names[i]] = parts[i];
  }

  void set(const Statement& statement) {
    const Value value = value_of(statement.expressions[0]);
    if (statement.text.empty()) return bind(statement, value);
    const Value* named = find(statement.text);
    std::map<std::string, Value>* space = named != nullptr ? space_at(**named) : nullptr;
    if (space == nullptr)
      throw InputError("line " + std::to_string(statement.line) + ": \"" + statement.text +
                       "\" is no namespace");
    (*space)[statement.names[0]] = value;
  }

  /// A namespace is one thing under all of its names.
  std::map<std::string, Value>* space_at(const json& value) {
    const auto mark = value.is_object() ? value.find(space_mark) : value.end();
    if (!value.is_object() || mark == value.end() || !mark->is_number_integer()) return nullptr;
    const auto number = mark->get<size_t>();
    return number < spaces_.size() ? &spaces_[number] : nullptr;
  }

  Value* find(const std::string& name) {
    for (size_t i = scopes_.size(); i-- > 0;)
      if (const auto found = scopes_[i].values.find(name); found != scopes_[i].values.end())
        return &found->second;
    return nullptr;
  }
  const Loop* innermost() const {
    for (size_t i = scopes_.size(); i-- > 0;)
      if (scopes_[i].loop) return &*scopes_[i].loop;
    return nullptr;
  }

  // Expressions.  Errors name the line.

  Value value_of(const Expression& expression) {
    spend(1);
    if (++depth_ > deepest_value) throw InputError("values lie too deep within each other");
    const auto with_line = [&](const InputError& error) {
      const std::string what = error.what();
      return raised_ || what.starts_with("line ") ? what
                                                  : "line " + std::to_string(expression.line) + ": " + what;
    };
    try {
      const Value value = evaluated(expression);
      --depth_;
      // Of a new value; what a variable or another value holds was only looked at.
      if (value.use_count() == 1)
        spend(static_cast<int64_t>(weight_of(*value) >> (value->is_string() ? 10 : 4)));
      return value;
    } catch (const Unsupported& error) {
      throw Unsupported(with_line(error));
    } catch (const InputError& error) {
      throw InputError(with_line(error));
    }
  }

  Value evaluated(const Expression& expression) {
    switch (expression.kind) {
      case Expression::Kind::literal:
        return made(expression.value);
      case Expression::Kind::name: {
        const Value* found = find(expression.text);
        return found != nullptr ? *found : undefined();
      }
      case Expression::Kind::list:
        return list_of(values_of(expression.parts, 0));
      case Expression::Kind::dict:
        return dict_of(expression);
      case Expression::Kind::attribute:
        return attribute_of(expression);
      case Expression::Kind::item: {
        const Value value = value_of(expression.parts[0]);
        return part_of(value, *value_of(expression.parts[1]));
      }
      case Expression::Kind::slice: {
        const std::vector<Value> parts = values_of(expression.parts, 0);
        return slice_of(parts[0], *parts[1], *parts[2], *parts[3]);
      }
      case Expression::Kind::call:
        return called(expression);
      case Expression::Kind::filter: {
        const Value value = value_of(expression.parts[0]);
        return apply_filter(expression.text, value, arguments_of(expression));
      }
      case Expression::Kind::test:
        return made(tested(expression));
      case Expression::Kind::operation:
        return operated(expression);
      case Expression::Kind::compare:
        return compared(expression);
    }
    return undefined();
  }

  std::vector<Value> values_of(const std::vector<Expression>& expressions, size_t first) {
    std::vector<Value> values;
    for (size_t i = first; i < expressions.size(); ++i) values.push_back(value_of(expressions[i]));
    return values;
  }
  Arguments arguments_of(const Expression& expression) {
    Arguments arguments{values_of(expression.parts, 1), {}};
    for (const auto& [name, value] : expression.named) arguments.named.emplace_back(name, value_of(value));
    return arguments;
  }

  Value dict_of(const Expression& expression) {
    json dict = json::object();
    for (size_t i = 0; i < expression.parts.size(); i += 2)
      dict[text_of(*value_of(expression.parts[i]))] = *value_of(expression.parts[i + 1]);
    return made_of_parts(std::move(dict));
  }

  Value attribute_of(const Expression& expression) {
    const Expression& whole = expression.parts[0];
    if (whole.kind == Expression::Kind::name && whole.text == "loop" && find("loop") == nullptr)
      if (const Loop* loop = innermost()) return of_loop(*loop, expression.text);
    const Value value = value_of(whole);
    if (is_undefined(value))
      throw InputError("\"" + expression.text + "\" of something undefined" +
                       (whole.kind == Expression::Kind::name ? " (" + whole.text + ")" : ""));
    return part_of(value, json(expression.text));
  }
  Value part_of(const Value& value, const json& key) {
    std::map<std::string, Value>* space = space_at(*value);
    if (space == nullptr) return item_of(value, key);
    const auto found = key.is_string() ? space->find(key.get<std::string>()) : space->end();
    return found != space->end() ? found->second : undefined();
  }

  static Value of_loop(const Loop& loop, const std::string& what) {
    const size_t count = loop.items->size();
    if (what == "index0") return made(loop.at);
    if (what == "index") return made(loop.at + 1);
    if (what == "first") return made(loop.at == 0);
    if (what == "last") return made(loop.at + 1 == count);
    if (what == "length") return made(count);
    if (what == "revindex") return made(count - loop.at);
    if (what == "revindex0") return made(count - loop.at - 1);
    if (what == "previtem") return loop.at > 0 ? (*loop.items)[loop.at - 1] : undefined();
    if (what == "nextitem") return loop.at + 1 < count ? (*loop.items)[loop.at + 1] : undefined();
    lack("loop." + what);
  }

  bool tested(const Expression& expression) {
    // Whether something is there may be asked of the parts of what is not.
    const Expression& asked = expression.parts[0];
    if ((expression.text == "defined" || expression.text == "undefined") &&
        asked.kind == Expression::Kind::name)
      return ((find(asked.text) != nullptr && !is_undefined(*find(asked.text))) || knows(asked.text)) ==
             (expression.text == "defined");
    const Value value = value_of(asked);
    return apply_test(expression.text, value, arguments_of(expression));
  }
  bool knows(const std::string& function) const {
    return macros_.contains(function) || function == "raise_exception" || function == "namespace" ||
           function == "range" || function == "dict" || (function == "loop" && innermost() != nullptr);
  }

  Value operated(const Expression& expression) {
    const std::string& by = expression.text;
    const auto part = [&](size_t i) { return value_of(expression.parts[i]); };
    if (by == "if") return is_true(*part(1)) ? part(0) : part(2);
    if (by == "not") return made(!is_true(*part(0)));
    const Value one = part(0);
    if (by == "and") return is_true(*one) ? part(1) : one;
    if (by == "or") return is_true(*one) ? one : part(1);
    const Value other = part(1);
    if (by == "~") return calculate("+", json(text_of(*one)), json(text_of(*other)));
    return calculate(by, *one, *other);
  }

  Value compared(const Expression& expression) {
    Value left = value_of(expression.parts[0]);
    for (size_t i = 0; i < expression.operators.size(); ++i) {
      Value right = value_of(expression.parts[i + 1]);
      if (!compare(expression.operators[i], *left, *right)) return made(false);
      left = std::move(right);
    }
    return made(true);
  }

  Value called(const Expression& expression) {
    const Expression& what = expression.parts[0];
    if (what.kind == Expression::Kind::attribute) {
      const Value value = value_of(what.parts[0]);
      if (is_undefined(value)) throw InputError("." + what.text + "() of something undefined");
      return call_method(what.text, value, arguments_of(expression));
    }
    if (what.kind != Expression::Kind::name) throw InputError("only functions and methods can be called");
    const Arguments arguments = arguments_of(expression);
    if (const auto found = macros_.find(what.text); found != macros_.end())
      return expanded(*found->second, arguments);
    if (what.text == "raise_exception") {
      raised_ = true;
      throw InputError(text_of(*arguments.at(0, "message")));
    }
    if (what.text == "namespace") return new_space(arguments);
    if (what.text == "dict") return new_dict(arguments);
    if (what.text == "strftime_now") return made(date(text_of(*arguments.at(0, "format"))));
    if (what.text == "range") return new_range(arguments);
    lack("the function \"" + what.text + "\"");
  }

  Value new_space(const Arguments& arguments) {
    std::map<std::string, Value> space;
    if (!arguments.values.empty())
      for (const auto& item : new_dict({{arguments.values[0]}, {}})->items())
        space[item.key()] = made(item.value());
    for (const auto& [name, value] : arguments.named) space[name] = value;
    spaces_.push_back(std::move(space));
    return made({{space_mark, spaces_.size() - 1}});
  }

  /// A macro sees what stands outside of all loops, and its parameters.
  Value expanded(const Statement& macro, const Arguments& arguments) {
    if (++calls_ > deepest_call) throw InputError("macros call each other without end");
    if (arguments.values.size() > macro.names.size())
      throw InputError("the macro \"" + macro.text + "\" takes " + std::to_string(macro.names.size()) +
                       " values");
    Scope own;
    for (size_t i = 0; i < macro.names.size(); ++i) {
      const Value& given = arguments.at(i, macro.names[i].c_str());
      own.values[macro.names[i]] = is_undefined(given) ? value_of(macro.expressions[i]) : given;
    }
    std::vector<Scope> outer(std::make_move_iterator(scopes_.begin() + 1),
                             std::make_move_iterator(scopes_.end()));
    scopes_.resize(1);
    scopes_.push_back(std::move(own));
    std::string text = written_by(macro.bodies[0]);
    scopes_.resize(1);
    scopes_.insert(scopes_.end(), std::make_move_iterator(outer.begin()),
                   std::make_move_iterator(outer.end()));
    --calls_;
    return made(std::move(text));
  }

  std::vector<Scope> scopes_;
  std::deque<std::map<std::string, Value>> spaces_;
  std::map<std::string, const Statement*> macros_;
  JinjaTemplate::Rendered out_;
  int captures_ = 0, calls_ = 0, depth_ = 0;
  bool raised_ = false;
};

}  // namespace

JinjaTemplate::Rendered JinjaTemplate::render(const json& variables) const {
  return Renderer(variables).render(statements_);
}

}  // namespace clover::data
