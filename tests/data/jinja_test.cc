// Oracle: what the PyPI package jinja2 makes of the same templates (scripts/make_jinja_goldens.py).
#include "data/jinja/jinja_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "data/error.h"
#include "tests/support/input_error.h"

namespace clover::data {
namespace {

using json = JinjaTemplate::json;

/// What a template writes; nothing where it is refused.
std::optional<std::string> rendered(const std::string& text, const json& variables) {
  try {
    return JinjaTemplate(text).render(variables).text;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::string error_of(const std::string& text) {
  return test::input_error([&] { JinjaTemplate(text).render(json::object()); });
}

TEST(Jinja, RendersAsPythonDoes) {
  std::ifstream file(std::string(CLOVER_SOURCE_DIR) + "/tests/golden/jinja.json");
  const json golden = json::parse(file);
  for (const json& one : golden["cases"]) {
    const std::string text = one["template"];
    const std::optional<std::string> found = rendered(text, golden["variables"]);
    ASSERT_EQ(found.has_value(), !one["text"].is_null()) << text;
    EXPECT_EQ(found.value_or(""), one["text"].is_null() ? "" : one["text"].get<std::string>()) << text;
  }
}

TEST(Jinja, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\nb {% if x %}\nc"), "line 3: expected {% endif %}, found the end of the template");
  EXPECT_EQ(error_of("\n{{ x.y }}"), "line 2: \"y\" of something undefined (x)");
  EXPECT_EQ(error_of("{% set x = 1 %}\n{{ x | sha256 }}"), "line 2: the filter \"sha256\" is not supported");
  EXPECT_EQ(error_of("{{ raise_exception('roles must alternate') }}"), "roles must alternate");
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// A template is a file like any other: it may cost neither the stack nor all memory nor forever.
TEST(Jinja, NoTemplateRunsAway) {
  for (const std::string& text :
       {std::string("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
        std::string(
            "{% set n = namespace(t='ab') %}{% for a in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}"),
        std::string(
            "{% set n = namespace(t=[]) %}{% for a in range(999) %}{% set n.t = [n.t] %}{% endfor %}"),
        std::string("{{ 'a' * 999999999999 }}"), std::string("{{ [1] * 999999999 }}"),
        std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
        "{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}",
        "{{ 1" + repeated("+1", 100'000) + " }}", "{{ " + repeated("not ", 100'000) + "1 }}",
        "{{ 1" + repeated("|abs", 100'000) + " }}", repeated("{% if 1 %}", 100'000),
        "{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}"}) {
    EXPECT_FALSE(rendered(text, json::object()).has_value()) << text.substr(0, 80);
  }
}

}  // namespace
}  // namespace clover::data
