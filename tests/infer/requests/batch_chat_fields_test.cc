// Fields besides the messages of a request (tools, documents, system): used by the chat template, or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files/error.h"
#include "infer/requests/batch_input.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

BatchLine good(const std::string& text) {
  auto parsed = parse_batch_line(3, text, {});
  const BadLine* bad = std::get_if<BadLine>(&parsed);
  EXPECT_FALSE(bad) << text << ": " << (bad ? bad->message : "");
  return bad ? BatchLine{} : std::get<BatchLine>(parsed);
}

std::string refused(const std::string& text) {
  const auto parsed = parse_batch_line(3, text, {});
  const BadLine* bad = std::get_if<BadLine>(&parsed);
  return bad ? bad->message : "";
}

TEST(BatchChatFields, ASystemMessageIsTheFirst) {
  for (const char* rest : {R"("messages":[{"role":"user","content":"a"}])", R"("turns":["a","b"])"}) {
    for (const char* name : {"system", "system_prompt"}) {
      const BatchLine line = good(std::string("{\"") + name + "\":\"Be brief.\"," + rest + "}");
      ASSERT_EQ(line.messages.size(), 2u) << rest;
      EXPECT_EQ(line.messages[0].role, "system");
      EXPECT_EQ(line.messages[0].content, "Be brief.");
      EXPECT_EQ(line.messages[1].content, "a");
    }
  }
  EXPECT_EQ(good(R"({"system":"","messages":[{"role":"user","content":"a"}]})").messages.size(), 1u);
}

TEST(BatchChatFields, TheOutputKeepsTheOrderOfWhatTemplatesPrint) {
  const std::string calls =
      R"([{"content":"a","role":"user"},{"content":"","role":"assistant",)"
      R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"z":"é","a":2}}}]}])";
  const std::string list = R"([{"type":"function","function":{"name":"f","about":1}}])";
  const std::string more = R"({"z":1,"a":{"y":1,"b":2}})";
  const BatchLine line = good(R"({"messages":)" + calls + R"(,"tools":)" + list + R"(,"documents":)" + list +
                              R"(,"chat_template_kwargs":)" + more + R"(,"mine":{"z":1,"a":2.50},"id":1})");
  EXPECT_EQ(record_to_text(line.record, line.verbatim),
            R"({"chat_template_kwargs":)" + more + R"(,"documents":)" + list + R"(,"id":1,"messages":)" +
                calls + R"(,"mine":{"z":1,"a":2.50},"tools":)" + list + "}");
  const BatchLine functions = good(R"({"turns":["a"],"functions":[{"name":"f","about":1.50}]})");
  EXPECT_EQ(record_to_text(functions.record, functions.verbatim),
            R"({"functions":[{"name":"f","about":1.50}],"turns":["a"]})");
  EXPECT_TRUE(good(R"({"messages":[{"role":"user","content":"a"}],"tools":null})").verbatim.empty());
}

TEST(BatchChatFields, TemplateArgumentsAndFieldsOfMessagesKeepTheirOrder) {
  const BatchLine line = good(
      R"({"messages":[{"role":"assistant","content":"a","reasoning_content":"hm","parts":{"z":1,"a":2},"weight":0}],)"
      R"("tools":[{"type":"function","function":{"name":"f","about":1}}],"chat_template_kwargs":{"z":1,"a":2}})");
  ASSERT_TRUE(line.arguments);
  EXPECT_EQ(line.arguments->dump(),
            R"({"tools":[{"type":"function","function":{"name":"f","about":1}}],"z":1,"a":2})");
  ASSERT_TRUE(line.messages[0].fields);
  EXPECT_EQ(line.messages[0].fields->at("parts").dump(), R"({"z":1,"a":2})");
  EXPECT_EQ(line.messages[0].fields->at("reasoning_content"), "hm");
  EXPECT_FALSE(line.messages[0].fields->contains("weight")) << "which is about training";
  EXPECT_FALSE(good(R"({"messages":[{"role":"user","content":"a","name":null}],"tools":[]})").arguments);

  const BatchLine openai = good(
      R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"a"}],)"
      R"("chat_template_kwargs":{"enable_thinking":false}}})");
  ASSERT_TRUE(openai.arguments);
  EXPECT_EQ(openai.arguments->dump(), R"({"enable_thinking":false})");
}

TEST(BatchChatFields, AFieldWithoutAConversationIsNamed) {
  EXPECT_THAT(refused(R"({"prompt":"a","system":"s"})"), HasSubstr("system: expected none beside prompt"));
  EXPECT_THAT(refused(R"({"prompt":"a","tools":[{"name":"f"}]})"), HasSubstr("tools"));
  EXPECT_THAT(refused(R"({"messages":[{"role":"user","content":"a"}],"history":[["a","b"]]})"),
              HasSubstr("history"));
  EXPECT_THAT(refused(R"({"turns":["a"],"context":"c"})"), HasSubstr("context: expected none beside turns"));
  EXPECT_EQ(refused(R"({"prompt":"a","system":"","tools":[],"context":null,"mine":{"tools":1}})"), "");
}

TEST(BatchChatFields, NullColumnsAreAbsentAndACategoryIsTextWhateverItWas) {
  const BatchLine line = good(
      R"({"prompt":null,"turns":null,"custom_id":null,"body":null,"messages":[{"from":"human","value":"a"}],"category":3})");
  EXPECT_EQ(line.shape, LineShape::messages);
  EXPECT_EQ(line.messages[0].role, "user");
  EXPECT_EQ(line.category, "3");
  EXPECT_EQ(line.record["category"], 3);
  EXPECT_EQ(good(R"({"prompt":"a","category":["x"]})").category, R"(["x"])");
}

TEST(BatchChatFields, AFileThatIsOneArraySaysSoOnce) {
  const test::TemporaryFolder folder;
  for (const char* text :
       {"[{\"prompt\": \"a\"}]", "[\n  {\"prompt\": \"a\"},\n  {\"prompt\": \"b\"}\n]\n"}) {
    const std::string file = folder.write("array.json", text);
    EXPECT_THAT(test::input_error([&] { read_batch_file(file, {}); }), HasSubstr("found one JSON array"));
  }
  const std::string lines = folder.write("lines.jsonl", "[1]\n{\"prompt\": \"a\"}\n");
  EXPECT_NO_THROW(refuse_json_array(lines)) << "one line that is a list is a bad line";
}

}  // namespace
}  // namespace clover::infer
