#include "data/files/lossless_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/files/files.h"

namespace clover::data {
namespace {

using Members = std::map<std::string, std::string>;

Members written(std::string_view text) {
  const LosslessJson json(text);
  parse_json(json.parseable(), "text");
  return json.verbatim_members();
}

TEST(LosslessJson, KeepsMembersWhoseNumbersWouldComeBackOtherwise) {
  EXPECT_EQ(written(R"({"a": 1, "b": -5, "c": 0.5, "d": 18446744073709551615, "e": -9223372036854775808,
                        "f": [1.0, true, null, "1e400", {"x": 2.25}]})"),
            Members{});
  EXPECT_EQ(
      written(R"( {"a" : 12345678901234567890123 , "b": -0, "c": 0.10, "d": 1E5, "e": 1e400, "f": -1e999,
                        "g": 1.00, "h": -9223372036854775809, "i": 0.1} )"),
      (Members{{"a", "12345678901234567890123"},
               {"b", "-0"},
               {"c", "0.10"},
               {"d", "1E5"},
               {"e", "1e400"},
               {"f", "-1e999"},
               {"g", "1.00"},
               {"h", "-9223372036854775809"}}));
  EXPECT_EQ(
      written(R"({"k\"\u00e9,:": {"deep": [ 1.50, {"z": "a, \\\" b: {", "a": [2E1]} ], "b": {}}, "n": 3})"),
      (Members{{"k\"\xC3\xA9,:", R"({"deep":[1.50,{"z":"a, \\\" b: {","a":[2E1]}],"b":{}})"}}));
  EXPECT_EQ(written(R"([1.50, {"a": 1.50}])"), Members{});
  EXPECT_EQ(written("1.50"), Members{});
  EXPECT_EQ(written(""
                    R"({})"),
            Members{});
}

TEST(LosslessJson, PutsHugeNumbersInQuotesAndNothingElse) {
  EXPECT_EQ(LosslessJson(R"({"a": 1e400, "b": [-2E+999,1e308]})").parseable(),
            R"({"a": "1e400", "b": ["-2E+999",1e308]})");
  // A text that is no JSON must still be refused by the parser.
  for (const char* text :
       {"{\"a\": 1e400x}", "{\"a\": +1e400}", "{\"a\": 01e400}", "{\"a\": 1.e400}", "{\"a\": \"1e400}",
        "{\"a\": 1e400 1}", "{\"a\\", "\"\\", "-", "{\"a\": --1e400}", "{\"a\": 1e400\"}"}) {
    const LosslessJson json(text);
    EXPECT_THROW(parse_json(json.parseable(), "text"), InputError) << text;
  }
}

TEST(LosslessJson, ReadsAnyBytes) {
  std::string bytes;
  for (unsigned state = 7, i = 0; i < 20000; ++i) {
    state = state * 1664525 + 1013904223;
    bytes += "{}[]:,\"\\ 1-e.0a\n\xff"[state >> 8 & 15];
    if (i % 37 != 0) continue;
    const LosslessJson json(bytes);
    EXPECT_GE(json.parseable().size(), bytes.size());
    if (bytes.size() > 60) bytes.clear();
  }
}

}  // namespace
}  // namespace clover::data
