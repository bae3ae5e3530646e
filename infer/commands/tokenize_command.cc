// `clover-infer tokenize`: prints the token ids of every line of a file.  It goes on in
// infer/requests/prompt_encoder.h.

#include <cstdio>
#include <iostream>
#include <variant>

#include "data/files/error.h"
#include "infer/commands/commands.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/line_reader.h"
#include "infer/requests/prompt_encoder.h"

namespace clover::infer {
namespace {

using nlohmann::json;

struct TokenizeOptions {
  std::string target, input, chat_template;
};

void print_record(const json& record, const VerbatimFields& verbatim) {
  std::cout << record_to_text(record, verbatim) << '\n';
  if (!std::cout) throw std::runtime_error("writing to stdout failed");
}

/// {"id", "text", "token_ids"} of a line.  InputError when it is not one text.
json token_record(const BatchLine& line, const PromptEncoder& encoder) {
  if (line.prompt_count() > 1)
    throw data::InputError("prompt: expected a line that is one text, found " +
                           std::to_string(line.prompt_count()));
  return {{"id", line.id.is_null() ? json(line.number) : line.id},
          {"text", encoder.text_of(line)},
          {"token_ids", encoder.encode(line)}};
}

/// The id as it was written, under the name "id" that records of this command use.
VerbatimFields id_field(const VerbatimFields& verbatim) {
  return verbatim.empty() ? VerbatimFields() : VerbatimFields{{"id", verbatim.begin()->second}};
}

/// Prints the record of one line: its tokens, or why it has none.  Returns whether it has tokens.
bool print_line(const std::variant<BatchLine, BadLine>& parsed, const PromptEncoder& encoder) {
  BadLine bad;
  if (const BatchLine* line = std::get_if<BatchLine>(&parsed)) {
    const VerbatimFields id = id_field(verbatim_id(*line));
    try {
      print_record(token_record(*line, encoder), id);
      return true;
    } catch (const data::InputError& error) {
      bad = {line->number, line->id, false, error.what(), id};
    }
  } else {
    bad = std::get<BadLine>(parsed);
    bad.openai = false;
    bad.verbatim = id_field(bad.verbatim);
  }
  print_record(bad.record(), bad.verbatim);
  return false;
}

int tokenize(const TokenizeOptions& options) {
  LineReader reader(options.input);
  refuse_json_array(options.input);
  const PromptEncoder encoder(options.target, options.chat_template);
  BatchParser parser({}, /*tokenize=*/true);
  int64_t failed = 0;
  for (std::string text; reader.next(text);) {
    stop_if_interrupted();
    if (!reader.too_long() && is_blank(text)) continue;
    failed += !print_line(reader.too_long() ? overlong_line(reader.number(), reader.limit())
                                            : parser.parse(reader.number(), text),
                          encoder);
  }
  std::cout.flush();
  if (!std::cout) throw std::runtime_error("writing to stdout failed");
  if (failed)
    std::fprintf(stderr, "%lld lines failed; their records name the reason\n",
                 static_cast<long long>(failed));
  return failed ? exit_some_failed : exit_done;
}

/// What --help prints after the options.
constexpr const char* tokenize_help_footer = R"(
Writes {"id", "text", "token_ids"} a line to stdout: the text after the chat template for messages, as given
otherwise.  Special tokens in the text are read as such.  {"prompt"} gets the BOS that the tokenizer adds by
itself, {"text"} does not; an empty text has no tokens.  Without an id, the line number stands for it.

Example:
  clover-infer tokenize --target models/SmolLM2-135M-Instruct --input texts.jsonl > tokens.jsonl
)";

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
  app.footer(tokenize_help_footer);
  return [options] {
    watch_for_interrupts();
    return tokenize(*options);
  };
}

}  // namespace clover::infer
