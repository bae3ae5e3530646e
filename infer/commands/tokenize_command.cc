#include <cstdio>
#include <iostream>

#include "data/files/error.h"
#include "infer/commands/commands.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/line_reader.h"
#include "infer/requests/loaded_model.h"

namespace clover::infer {
namespace {

using nlohmann::json;

struct TokenizeOptions {
  std::string target, input, chat_template;
};

void print_record(const json& record, const AsWritten& written) {
  std::cout << text_of_record(record, written) << '\n';
  if (!std::cout) throw std::runtime_error("writing to stdout failed");
}

json tokenized(const BatchLine& line, const PromptEncoder& prompts) {
  if (line.choices() > 1)
    throw data::InputError("prompt: expected a line that is one text, found " +
                           std::to_string(line.choices()));
  return {{"id", line.id.is_null() ? json(line.number) : line.id},
          {"text", prompts.text_of(line)},
          {"token_ids", prompts.encode(line)}};
}

int tokenize(const TokenizeOptions& options) {
  LineReader reader(options.input);
  refuse_json_array(options.input);
  const PromptEncoder prompts(options.target, options.chat_template);
  BatchParser parser({}, true);
  int64_t failed = 0;
  for (std::string text; reader.next(text);) {
    stop_if_interrupted();
    if (!reader.too_long() && is_blank(text)) continue;
    auto parsed = reader.too_long() ? overlong_line(reader.number(), reader.limit())
                                    : parser.parse(reader.number(), text);
    try {
      if (const BadLine* bad = std::get_if<BadLine>(&parsed)) throw data::InputError(bad->message);
      const BatchLine& line = std::get<BatchLine>(parsed);
      AsWritten id = id_as_written(line);
      if (!id.empty()) id = {{"id", id.begin()->second}};
      print_record(tokenized(line, prompts), id);
    } catch (const data::InputError& error) {
      BadLine bad{reader.number(), nullptr, false, error.what()};
      const bool parsed_well = std::holds_alternative<BatchLine>(parsed);
      bad.id = parsed_well ? std::get<BatchLine>(parsed).id : std::get<BadLine>(parsed).id;
      bad.written =
          parsed_well ? id_as_written(std::get<BatchLine>(parsed)) : std::get<BadLine>(parsed).written;
      if (!bad.written.empty()) bad.written = {{"id", bad.written.begin()->second}};
      print_record(bad.record(), bad.written);
      ++failed;
    }
  }
  std::cout.flush();
  if (!std::cout) throw std::runtime_error("writing to stdout failed");
  if (failed)
    std::fprintf(stderr, "%lld lines failed; their records name the reason\n",
                 static_cast<long long>(failed));
  return failed ? exit_some_failed : exit_done;
}

}  // namespace

Action declare_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  app.add_option("--target", options->target, "Folder with the tokenizer (and the chat template)")
      ->required()
      ->type_name("DIR");
  app.add_option("--input", options->input,
                 "{\"text\"}, {\"prompt\"} or {\"messages\"}, or OpenAI requests, one a line")
      ->required()
      ->type_name("FILE");
  app.add_option("--template", options->chat_template, "Chat template by name (default: the folder's)")
      ->type_name("NAME");
  app.footer(
      "\nWrites {\"id\", \"text\", \"token_ids\"} a line to stdout: the text after the chat template for "
      "messages, as given\n"
      "otherwise.  Special tokens in the text are read as such.  {\"prompt\"} gets the BOS that the "
      "tokenizer adds by\n"
      "itself, {\"text\"} does not; an empty text has no tokens.  Without an id, the line number stands for "
      "it.\n\n"
      "Example:\n"
      "  clover-infer tokenize --target models/SmolLM2-135M-Instruct --input texts.jsonl > tokens.jsonl\n");
  return [options] {
    watch_for_interrupts();
    return tokenize(*options);
  };
}

}  // namespace clover::infer
